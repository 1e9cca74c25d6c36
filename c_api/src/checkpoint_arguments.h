// SPDX-License-Identifier: Apache-2.0
// Arguments of the calls on checkpoints.
#pragma once

#include <array>
#include <string>

#include "c_api/src/guard.h"
#include "core/base/text.h"
#include "kernels/kernels.h"

namespace outrigger::c_api {

inline bool flag(int32_t value, const char* name) {
  if (value != 0 && value != 1) fail(OTR_E_ARGUMENT, "{} = {}; legal is 0 or 1", name, value);
  return value == 1;
}

inline std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

// What weights are kept as outside: float32, bfloat16 or float16.
inline kernels::Format weight_format(const char* dtype, const char* what) {
  using kernels::Format;
  const std::string name = &required(dtype, what);
  for (const Format format : {Format::float32, Format::bfloat16, Format::float16}) {
    if (name == kernels::name_of(format)) return format;
  }
  fail(OTR_E_ARGUMENT, "{} = \"{}\"; legal is \"float32\", \"bfloat16\" or \"float16\"", what,
       printable(name));
}

}  // namespace outrigger::c_api
