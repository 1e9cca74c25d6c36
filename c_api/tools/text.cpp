// SPDX-License-Identifier: Apache-2.0
#include "text.h"

namespace outrigger::tools {

std::string format_erased(fmt::string_view text, fmt::format_args args) {
  return fmt::vformat(text, args);
}

std::string shown(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // Those of one byte, and those of Latin-1 as UTF-8 has them: C2 80 to C2 9F.
    const bool second = i > 0 && text[i - 1] == '\xC2' && byte >= 0x80 && byte < 0xA0;
    if (byte < 0x20 || byte == 0x7F) text[i] = '?';
    if (second) text[i - 1] = text[i] = '?';
  }
  return text;
}

}  // namespace outrigger::tools
