// SPDX-License-Identifier: Apache-2.0
// Patterns of names.
#pragma once

#include <string_view>

namespace outrigger {

// Whether the pattern means the whole name: `*` stands for any characters, none and '.' among them,
// `?` for exactly one (of UTF-8), every other character for itself, upper and lower case apart.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view name);
// A text without one means itself only.
[[nodiscard]] inline bool has_wildcards(std::string_view text) {
  return text.find_first_of("*?") != std::string_view::npos;
}

}  // namespace outrigger
