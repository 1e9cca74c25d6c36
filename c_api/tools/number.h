// SPDX-License-Identifier: Apache-2.0
// The check of an option that is a number. (CLI::Range lets NaN through.)
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "text.h"

namespace outrigger::tools {

// what: the unit and whose it is, such as "seconds".
inline CLI::Validator number_in(double least, double most, const std::string& what) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return {};
    return format_text("{} is not legal; give {} as a number from {} to {}", text, what, least,
                       most);
  };
  return {check, format_text("in [{} - {}]", least, most)};
}

}  // namespace outrigger::tools
