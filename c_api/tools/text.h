// SPDX-License-Identifier: Apache-2.0
// fmt::format, compiled once: where it is used directly every file compiles all of fmt's
// formatting, which with a sanitizer takes longer than the rest of the file.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace outrigger::tools {

[[nodiscard]] std::string format_erased(fmt::string_view text, fmt::format_args args);

template <typename... Args>
[[nodiscard]] std::string format_text(fmt::format_string<Args...> text, Args&&... args) {
  return format_erased(text, fmt::make_format_args(args...));
}

// Text of a file that others wrote, for a terminal: control characters become '?'.
[[nodiscard]] std::string shown(std::string text);

// To standard output.
template <typename... Args>
void write_text(fmt::format_string<Args...> text, Args&&... args) {
  const std::string line = format_erased(text, fmt::make_format_args(args...));
  std::fwrite(line.data(), 1, line.size(), stdout);
}

// To standard error. A full disk or a closed descriptor loses the message, never the job.
template <typename... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  const std::string line = format_text(text, std::forward<Args>(args)...);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace outrigger::tools
