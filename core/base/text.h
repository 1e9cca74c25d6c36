// SPDX-License-Identifier: Apache-2.0
// fmt::format, compiled once: where it is used directly every file compiles all of fmt's
// formatting, which with a sanitizer takes longer than the rest of the file.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace outrigger {

[[nodiscard]] std::string format_erased(fmt::string_view text, fmt::format_args args);

template <typename... Args>
[[nodiscard]] std::string format_text(fmt::format_string<Args...> text, Args&&... args) {
  return format_erased(text, fmt::make_format_args(args...));
}

// Bytes of the UTF-8 character that the text, which is not empty, begins with; 0 if it is none.
[[nodiscard]] size_t utf8_length(std::string_view text);
// Whether all of it is UTF-8, and so can stand in JSON.
[[nodiscard]] bool is_utf8(std::string_view text);

// Text that fits into one line of a message: control characters and bytes that are not UTF-8 become
// '?', and it is cut after `characters`.
[[nodiscard]] std::string printable(std::string_view text, size_t characters = 40);

}  // namespace outrigger
