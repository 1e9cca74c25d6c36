// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/call.h"

#include <string_view>

#include "core/base/text.h"

namespace otr_fuzz {

std::string text_of(const otr_tensor* tensor) {
  if (tensor == nullptr) return "NULL";
  const otr_tensor& t = *tensor;
  std::string text =
      outrigger::format_text("{{{}{}x{} device {} [", t.data == nullptr ? "NULL " : "",
                             int{t.dtype.code}, int{t.dtype.bits}, t.device.device_type);
  for (int32_t d = 0; t.shape != nullptr && t.ndim <= 64 && d < t.ndim && d < 8; ++d) {
    text += outrigger::format_text("{}{}", d == 0 ? "" : " ", t.shape[d]);
    if (t.strides != nullptr) text += outrigger::format_text("/{}", t.strides[d]);
  }
  return text + outrigger::format_text("]+{}}}", t.byte_offset);
}

std::string text_of(const char* text) {
  return text == nullptr ? "NULL" : outrigger::format_text("\"{}\"", text);
}

void examine(const char* call, int32_t status) {
  const std::string_view text = otr_last_error_message();
  if (std::string_view(otr_status_name(status)) == "unknown") {
    broken(outrigger::format_text("{} returned {}, which is no status", call, status));
  }
  if (status == OTR_E_INTERNAL)
    broken(outrigger::format_text("{} found a fault inside: {}", call, text));
  if (status == OTR_OK && !text.empty())
    broken(outrigger::format_text("{} = OK with a text: {}", call, text));
  if (status != OTR_OK && text.empty())
    broken(outrigger::format_text("{} = {} without a text", call, status));
  if (text.find('\n') != std::string_view::npos) {
    broken(outrigger::format_text("{}: more than one line: {}", call, text));
  }
}

}  // namespace otr_fuzz
