// SPDX-License-Identifier: Apache-2.0
// Guesses what a misspelt name was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace outrigger {

// The candidate with the fewest insertions, deletions, replacements and swaps of neighbours from
// `word`, case aside; empty if none is near (at most a third of its letters, and two at least).
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace outrigger
