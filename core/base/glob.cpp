// SPDX-License-Identifier: Apache-2.0
#include "core/base/glob.h"

#include <algorithm>
#include <cstddef>

#include "core/base/text.h"

namespace outrigger {

// The last star alone takes more characters when the rest does not fit, so the time is at most the
// product of the lengths.
bool glob_matches(std::string_view pattern, std::string_view name) {
  const auto behind = [&](size_t at) {
    return at + std::max<size_t>(1, utf8_length(name.substr(at)));
  };
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      n = behind(n);
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      taken = behind(taken);
      n = taken;
      p = star + 1;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace outrigger
