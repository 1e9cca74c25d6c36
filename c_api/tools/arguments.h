// SPDX-License-Identifier: Apache-2.0
// Words of the command line that no command takes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace outrigger::tools {

// Of `known` the one that differs in the fewest letters, if these are few; else empty.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "--wrld; the nearest is --world", as far as there is one.
[[nodiscard]] std::string unknown_option(const CLI::App& command, const std::string& word);

// What is wrong with the first word that was left over after parsing; empty if none was.
[[nodiscard]] std::string left_over(const CLI::App& app);

}  // namespace outrigger::tools
