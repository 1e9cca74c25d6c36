// SPDX-License-Identifier: Apache-2.0
#include "text.h"

namespace outrigger::tools {

std::string format_erased(fmt::string_view text, fmt::format_args args) {
  return fmt::vformat(text, args);
}

}  // namespace outrigger::tools
