// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <algorithm>
#include <numeric>

#include "text.h"

namespace outrigger::tools {
namespace {

// Levenshtein's: letters to put in, take out or replace.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t d = distance(word, name);
    if (d >= least) continue;
    least = d;
    best = name;
  }
  return best;
}

std::string unknown_option(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& other : option->get_lnames()) known.push_back("--" + other);
  }
  const std::string guess = nearest(name, known);
  return guess.empty() ? name : format_text("{}; the nearest is {}", name, guess);
}

std::string left_over(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  const CLI::App& command = parsed.empty() ? app : *parsed[0];
  const std::vector<std::string> rest = command.remaining();
  if (rest.empty() || command.get_prefix_command()) return {};
  const std::string name = parsed.empty() ? "outrigger" : "outrigger " + command.get_name();
  const auto option =
      std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with('-'); });
  if (option == rest.end()) {
    return format_text("{}: \"{}\" is one argument too many; see {} --help", name, rest[0], name);
  }
  return format_text("{}: unknown option {}; see {} --help", name, unknown_option(command, *option),
                     name);
}

}  // namespace outrigger::tools
