// SPDX-License-Identifier: Apache-2.0
// Strict JSON, read as it is asked for: who reads says what must come, so text that nests or
// repeats costs nothing. Private to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace outrigger::checkpoint {

// Every refusal is OTR_E_CORRUPT and names the file, where in it (`within`), and the byte.
class Scanner {
 public:
  // Both are kept by reference.
  Scanner(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  // "tensor 'a'", for messages; empty: the header as a whole.
  void within(std::string where) { where_ = std::move(where); }

  // Calls member(key), which reads the value.
  template <typename Member>
  void object(std::string_view what, const Member& member) {
    open('{', what, "an object");
    if (take('}')) return;
    do {
      std::string key = string("a key");
      if (!take(':')) refuse_next("':'");
      member(std::move(key));
    } while (next('}'));
  }
  // Calls item(), which reads it.
  template <typename Item>
  void list(std::string_view what, const Item& item) {
    open('[', what, "a list");
    if (take(']')) return;
    do {
      item();
    } while (next(']'));
  }
  [[nodiscard]] std::string string(std::string_view what);
  // Digits only, at most INT64_MAX.
  [[nodiscard]] int64_t whole_number(std::string_view what);
  void end();  // nothing but spaces is left

  [[noreturn]] void refuse(std::string_view reason) const;

 private:
  void skip_spaces();
  bool take(char wanted);   // behind spaces
  bool next(char closing);  // a comma: true; the closing bracket: false
  void open(char bracket, std::string_view what, std::string_view kind);
  void escape(std::string& out);
  uint32_t unit();  // the four digits of \uXXXX
  [[noreturn]] void refuse_next(std::string_view wanted);

  std::string_view text_, file_;
  std::string where_;
  size_t at_ = 0;
};

}  // namespace outrigger::checkpoint
