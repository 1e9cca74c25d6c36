// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/guard.h"

#include <array>

namespace outrigger::plugins {
namespace {

// No std::string: a static object's destructor may close a device, when those of the main thread's
// thread_local objects have run.
thread_local std::array<char, 4096> error_text{};

}  // namespace

const char* last_error() noexcept { return error_text.data(); }

void set_error(const char* text) noexcept {
  const size_t length = std::min(std::strlen(text), error_text.size() - 1);
  std::memmove(error_text.data(), text, length);
  error_text[length] = '\0';
}

}  // namespace outrigger::plugins
