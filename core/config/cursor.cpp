// SPDX-License-Identifier: Apache-2.0
#include "core/config/cursor.h"

namespace outrigger::config {

void Cursor::advance() {
  const auto byte = static_cast<unsigned char>(text_[offset_++]);
  if (byte == '\n') {
    ++here_.line;
    here_.column = 1;
  } else if (offset_ >= text_.size() ||
             (static_cast<unsigned char>(text_[offset_]) & 0xC0U) != 0x80U) {
    ++here_.column;  // not inside a UTF-8 sequence
  }
}

void Cursor::go_to(size_t offset) {
  while (offset_ < offset && offset_ < text_.size()) advance();
  position_ = here_;
}

std::string_view Cursor::peek() {
  constexpr std::string_view kSkipped = " \t\r\n,:";
  separator_ = 0;
  while (offset_ < text_.size() && kSkipped.find(text_[offset_]) != std::string_view::npos) {
    if (text_[offset_] == ',' || text_[offset_] == ':') separator_ = text_[offset_];
    advance();
  }
  position_ = here_;
  return text_.substr(offset_);
}

std::string_view Cursor::take() {
  const std::string_view rest = peek();
  if (rest.empty()) return rest;
  size_t length = 1;
  if (rest[0] == '"') {
    while (length < rest.size() && rest[length] != '"') length += rest[length] == '\\' ? 2 : 1;
    ++length;
  } else if (std::string_view("{}[]").find(rest[0]) == std::string_view::npos) {
    length = rest.find_first_of(" \t\r\n,:{}[]\"");
  }
  if (length > rest.size()) length = rest.size();
  const Position start = here_;
  go_to(offset_ + length);
  position_ = start;
  return rest.substr(0, length);
}

}  // namespace outrigger::config
