// SPDX-License-Identifier: Apache-2.0
// Arguments of the calls on checkpoints.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c_api/src/guard.h"
#include "core/base/text.h"
#include "core/engine/checkpoints.h"
#include "kernels/kernels.h"

namespace outrigger::c_api {

inline bool flag(int32_t value, const char* name) {
  if (value != 0 && value != 1) fail(OTR_E_ARGUMENT, "{} = {}; legal is 0 or 1", name, value);
  return value == 1;
}

inline std::vector<engine::HostPart> parts_of(const otr_part* given, int64_t count,
                                              const char* what) {
  if (count < 0 || (count > 0 && given == nullptr)) {
    fail(OTR_E_ARGUMENT, "{}.part_count = {} with parts {}", what, count,
         given == nullptr ? "NULL" : "given");
  }
  std::vector<engine::HostPart> parts;
  for (int64_t i = 0; i < count; ++i) {
    const otr_part& part = given[i];
    if (part.name == nullptr || (part.data == nullptr && part.bytes > 0)) {
      fail(OTR_E_ARGUMENT, "{}.parts[{}]: its name or data is NULL", what, i);
    }
    parts.push_back({part.name, std::span(static_cast<const std::byte*>(part.data), part.bytes)});
  }
  return parts;
}

inline otr_save_options save_defaults() {
  otr_save_options o{};
  o.struct_size = sizeof o;
  return o;
}

inline otr_snapshot_options snapshot_defaults() {
  otr_snapshot_options o{};
  o.struct_size = sizeof o;
  return o;
}

inline otr_load_options load_defaults() {
  otr_load_options o{};
  o.struct_size = sizeof o;
  o.strict = 1;
  return o;
}

inline engine::SaveOptions options_of(const otr_save_options& o) {
  engine::SaveOptions options;
  options.replace = flag(o.replace, "save_options.replace");
  options.asynchronous = flag(o.asynchronous, "save_options.asynchronous");
  if (o.when_busy != OTR_SAVE_WAIT && o.when_busy != OTR_SAVE_REFUSE) {
    fail(OTR_E_ARGUMENT,
         "save_options.when_busy = {}; legal is OTR_SAVE_WAIT ({}) or OTR_SAVE_REFUSE ({})",
         o.when_busy, int{OTR_SAVE_WAIT}, int{OTR_SAVE_REFUSE});
  }
  options.refuse_when_busy = o.when_busy == OTR_SAVE_REFUSE;
  options.keep_last = o.keep_last;
  if (o.keep_last < 0) {
    fail(OTR_E_ARGUMENT, "save_options.keep_last = {}; legal is 0 or more", o.keep_last);
  }
  options.parts = parts_of(o.parts, o.part_count, "save_options");
  return options;
}

// buffer NULL: only asked for.
inline void give_bytes(std::span<const std::byte> bytes, void* buffer, size_t* inout_size) {
  const size_t room = std::exchange(required(inout_size, "inout_size"), bytes.size());
  if (buffer == nullptr) return;
  if (room < bytes.size()) {
    fail(OTR_E_BUFFER_SIZE, "{} bytes are needed; the buffer has {}", bytes.size(), room);
  }
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(buffer));
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
