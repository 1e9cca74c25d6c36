// SPDX-License-Identifier: Apache-2.0
// Follows a JSON reader through its text: the reader says what it found, the cursor knows where.
#pragma once

#include <string_view>

#include "core/config/document.h"

namespace outrigger::config {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Goes to the next token and past it; returns its text. Commas and colons are no tokens.
  std::string_view take();
  // Goes to the next token without passing it; returns the rest of the text.
  std::string_view peek();
  // Goes to a byte offset at or after the current one.
  void go_to(size_t offset);

  [[nodiscard]] Position position() const { return position_; }  // of the last token
  [[nodiscard]] size_t offset() const { return offset_; }
  [[nodiscard]] char separator() const { return separator_; }  // last comma or colon passed, or 0

 private:
  void advance();

  std::string_view text_;
  size_t offset_ = 0;
  Position here_, position_;
  char separator_ = 0;
};

}  // namespace outrigger::config
