// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>

#include "c_api/src/guard.h"
#include "outrigger.h"

namespace outrigger::c_api {
namespace {

thread_local std::array<char, kErrorText> error_text{};

}  // namespace

void set_error_text(const char* text) noexcept {
  size_t length = std::strlen(text);
  if (length >= kErrorText) {
    length = kErrorText - 1;
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
      --length;  // whole UTF-8
  }
  std::memcpy(error_text.data(), text, length);
  error_text[length] = '\0';
  // One line: texts may quote a caller's string.
  for (size_t i = 0; i < length; ++i) {
    if (static_cast<unsigned char>(error_text[i]) < 0x20) error_text[i] = ' ';
  }
}

void clear_error_text() noexcept { error_text[0] = '\0'; }

KeptErrorText::KeptErrorText() noexcept { std::strcpy(text_.data(), error_text.data()); }
KeptErrorText::~KeptErrorText() { std::strcpy(error_text.data(), text_.data()); }

void write_text(std::string_view text, char* buffer, size_t* inout_size) {
  size_t& size = required(inout_size, "inout_size");
  const size_t given = size;
  size = text.size() + 1;
  if (buffer == nullptr && given == 0) return;
  required(buffer, "buffer");
  if (given < text.size() + 1) {
    fail(OTR_E_BUFFER_SIZE, "the buffer has {} bytes, {} are needed", given, text.size() + 1);
  }
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
}

}  // namespace outrigger::c_api

const char* otr_last_error_message(void) noexcept { return outrigger::c_api::error_text.data(); }

const char* otr_status_name(int32_t status) noexcept {
  switch (status) {
#define OTR_NAME(code) \
  case code:           \
    return #code
    OTR_NAME(OTR_OK);
    OTR_NAME(OTR_E_ARGUMENT);
    OTR_NAME(OTR_E_STATE);
    OTR_NAME(OTR_E_CONFIG);
    OTR_NAME(OTR_E_UNSUPPORTED);
    OTR_NAME(OTR_E_SHAPE);
    OTR_NAME(OTR_E_DTYPE);
    OTR_NAME(OTR_E_DEVICE);
    OTR_NAME(OTR_E_NOT_FOUND);
    OTR_NAME(OTR_E_DUPLICATE);
    OTR_NAME(OTR_E_OUT_OF_MEMORY);
    OTR_NAME(OTR_E_BUFFER_SIZE);
    OTR_NAME(OTR_E_PEER_DEAD);
    OTR_NAME(OTR_E_TIMEOUT);
    OTR_NAME(OTR_E_MISMATCH);
    OTR_NAME(OTR_E_ABORTED);
    OTR_NAME(OTR_E_POISONED);
    OTR_NAME(OTR_E_SYSTEM);
    OTR_NAME(OTR_E_ABI);
    OTR_NAME(OTR_E_HOST);
    OTR_NAME(OTR_E_INTERRUPTED);
    OTR_NAME(OTR_E_LOSS_SCALE);
    OTR_NAME(OTR_E_DEVICE_FAULT);
    OTR_NAME(OTR_E_IO);
    OTR_NAME(OTR_E_CORRUPT);
    OTR_NAME(OTR_E_INTERNAL);
#undef OTR_NAME
    default:
      return "unknown";
  }
}
