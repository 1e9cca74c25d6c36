// SPDX-License-Identifier: Apache-2.0
// What ends a command: a status by name and one line that says what is wrong and the way out.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "outrigger.h"
#include "text.h"

namespace outrigger::tools {

class Fault : public std::runtime_error {
 public:
  Fault(int32_t status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  [[nodiscard]] int32_t code() const noexcept { return status_; }

 private:
  int32_t status_;
};

// The command was not called as it should be, or with a file that cannot be opened: exit code 2,
// whatever the command.
class Misuse : public Fault {
 public:
  explicit Misuse(const std::string& message, int32_t status = OTR_E_ARGUMENT)
      : Fault(status, message) {}
};

template <typename... Args>
[[noreturn]] void fail(int32_t status, fmt::format_string<Args...> text, Args&&... args) {
  throw Fault(status, format_text(text, std::forward<Args>(args)...));
}

// Of a call of the library.
inline void check(int32_t status) {
  if (status != OTR_OK) throw Fault(status, otr_last_error_message());
}

}  // namespace outrigger::tools
