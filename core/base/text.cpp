// SPDX-License-Identifier: Apache-2.0
#include "core/base/text.h"

namespace outrigger {

std::string format_erased(fmt::string_view text, fmt::format_args args) {
  return fmt::vformat(text, args);
}

}  // namespace outrigger
