// SPDX-License-Identifier: Apache-2.0
// fmt::format, compiled once: where it is used directly every file compiles all of fmt's
// formatting, which with a sanitizer takes longer than the rest of the file.
#pragma once

#include <fmt/format.h>

#include <string>

namespace outrigger {

[[nodiscard]] std::string format_erased(fmt::string_view text, fmt::format_args args);

template <typename... Args>
[[nodiscard]] std::string format_text(fmt::format_string<Args...> text, Args&&... args) {
  return format_erased(text, fmt::make_format_args(args...));
}

}  // namespace outrigger
