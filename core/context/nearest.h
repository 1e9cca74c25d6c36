// SPDX-License-Identifier: Apache-2.0
// The known name that a misspelt one probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outrigger {

// ": did you mean \"lr\"?", or "" when nothing is near.
[[nodiscard]] std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace outrigger
