// SPDX-License-Identifier: Apache-2.0
// What holds for every text that is given as a configuration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace otr_fuzz {

struct Verdict {
  bool accepted = false;  // as an engine's configuration
  std::string broken;     // the first property that does not hold; empty: all do
};

// Reads the text as an engine's and as an optimizer's configuration.
[[nodiscard]] Verdict check_configuration(std::string_view text);

}  // namespace otr_fuzz
