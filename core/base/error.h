// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library; c_api maps it to a status code and a text.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/text.h"
#include "outrigger.h"

namespace outrigger {

// `status` is an OTR_E_ code; the text names the value, the rule and the way out, in one line.
class Error : public std::runtime_error {
 public:
  explicit Error(int32_t status, const std::string& text, int32_t culprit = -1)
      : std::runtime_error(text), status_(status), culprit_(culprit) {}

  [[nodiscard]] int32_t status() const noexcept { return status_; }
  // Of a failure that a communicator tells its ranks: whose it is; else −1.
  [[nodiscard]] int32_t culprit() const noexcept { return culprit_; }

 private:
  int32_t status_, culprit_;
};

template <typename... Args>
[[noreturn]] void fail(int32_t status, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(status, format_text(text, std::forward<Args>(args)...));
}

}  // namespace outrigger
