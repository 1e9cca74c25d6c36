// SPDX-License-Identifier: Apache-2.0
#include "core/context/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace outrigger {
namespace {

// Levenshtein distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known) {
  constexpr size_t kLongest = 256;  // names come from outside; the search is quadratic
  std::string_view best;
  size_t least = name.size() / 2 + 1;  // more than half wrong is another word
  if (name.size() > kLongest) return "";
  for (const std::string_view candidate : known) {
    if (candidate.size() > kLongest) continue;
    const size_t d = distance(name, candidate);
    if (d < least) {
      least = d;
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format(": did you mean \"{}\"?", best);
}

}  // namespace outrigger
