// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/call.h"

#include <string_view>

namespace otr_fuzz {

std::string text_of(const otr_tensor* tensor) {
  if (tensor == nullptr) return "NULL";
  const otr_tensor& t = *tensor;
  std::string text = fmt::format("{{{}{}x{} device {} [", t.data == nullptr ? "NULL " : "",
                                 int{t.dtype.code}, int{t.dtype.bits}, t.device.device_type);
  for (int32_t d = 0; t.shape != nullptr && t.ndim <= 64 && d < t.ndim && d < 8; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : " ", t.shape[d]);
    if (t.strides != nullptr) text += fmt::format("/{}", t.strides[d]);
  }
  return text + fmt::format("]+{}}}", t.byte_offset);
}

std::string text_of(const char* text) {
  return text == nullptr ? "NULL" : fmt::format("\"{}\"", text);
}

void examine(const char* call, int32_t status) {
  const std::string_view text = otr_last_error_message();
  if (std::string_view(otr_status_name(status)) == "unknown") {
    broken(fmt::format("{} returned {}, which is no status", call, status));
  }
  if (status == OTR_E_INTERNAL) broken(fmt::format("{} found a fault inside: {}", call, text));
  if (status == OTR_OK && !text.empty()) broken(fmt::format("{} = OK with a text: {}", call, text));
  if (status != OTR_OK && text.empty()) broken(fmt::format("{} = {} without a text", call, status));
  if (text.find('\n') != std::string_view::npos) {
    broken(fmt::format("{}: more than one line: {}", call, text));
  }
}

}  // namespace otr_fuzz
