// SPDX-License-Identifier: Apache-2.0
// fmt::format, compiled once: where it is used directly every file compiles all of fmt's
// formatting, which with a sanitizer takes longer than the rest of the file.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace outrigger {

[[nodiscard]] std::string format_erased(fmt::string_view text, fmt::format_args args);

template <typename... Args>
[[nodiscard]] std::string format_text(fmt::format_string<Args...> text, Args&&... args) {
  return format_erased(text, fmt::make_format_args(args...));
}

// What a message is about: words, and a name in quotes behind them. Put together where there is
// such a message, so that a call that does not fail makes no text.
class Subject {
 public:
  template <typename Words>
    requires std::convertible_to<Words, std::string_view>
  Subject(const Words& words, std::string_view name = {}) : words_(words), name_(name) {}  // NOLINT

 private:
  friend fmt::formatter<Subject>;
  std::string_view words_, name_;
};

// Bytes of the UTF-8 character that the text, which is not empty, begins with; 0 if it is none.
[[nodiscard]] size_t utf8_length(std::string_view text);
// Whether all of it is UTF-8, and so can stand in JSON.
[[nodiscard]] bool is_utf8(std::string_view text);

// Text that fits into one line of a message: control characters and bytes that are not UTF-8 become
// '?', and it is cut after `characters`.
[[nodiscard]] std::string printable(std::string_view text, size_t characters = 40);

}  // namespace outrigger

template <>
struct fmt::formatter<outrigger::Subject> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  format_context::iterator format(const outrigger::Subject& subject, format_context& context) const;
};
