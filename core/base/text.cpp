// SPDX-License-Identifier: Apache-2.0
#include "core/base/text.h"

namespace outrigger {
namespace {

// Bytes of the UTF-8 character that `text` begins with; 0 if it is none, or a control character.
size_t printable_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 0x20 || first == 0x7F ? 0 : utf8_length(text);
}

}  // namespace

std::string format_erased(fmt::string_view text, fmt::format_args args) {
  return fmt::vformat(text, args);
}

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(k) & 0xC0U) != 0x80U) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) >= 0xA0;
  const bool beyond = first == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, size_t characters) {
  std::string out;
  for (size_t i = 0, shown = 0; i < text.size(); ++shown) {
    if (shown == characters) return out + "…";
    const size_t length = printable_length(text.substr(i));
    if (length == 0) {
      out += '?';
      ++i;
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out;
}

}  // namespace outrigger

fmt::format_context::iterator fmt::formatter<outrigger::Subject>::format(
    const outrigger::Subject& subject, format_context& context) const {
  const bool is_named = subject.name_.data() != nullptr;
  return is_named ? fmt::format_to(context.out(), "{} \"{}\"", subject.words_, subject.name_)
                  : fmt::format_to(context.out(), "{}", subject.words_);
}
