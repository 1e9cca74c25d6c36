// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/scanner.h"

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::checkpoint {
namespace {

void append_utf8(std::string& out, uint32_t point) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0U | point >> 6U);
    put(0x80U | (point & 0x3FU));
  } else if (point < 0x10000) {
    put(0xE0U | point >> 12U);
    put(0x80U | (point >> 6U & 0x3FU));
    put(0x80U | (point & 0x3FU));
  } else {
    put(0xF0U | point >> 18U);
    put(0x80U | (point >> 12U & 0x3FU));
    put(0x80U | (point >> 6U & 0x3FU));
    put(0x80U | (point & 0x3FU));
  }
}

bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void Scanner::refuse(std::string_view reason) const {
  fail(OTR_E_CORRUPT, "{}: {}{}{} (byte {} of the header)", file_, where_,
       where_.empty() ? "" : ": ", reason, at_);
}

void Scanner::refuse_next(std::string_view wanted) {
  skip_spaces();
  const std::string_view rest = text_.substr(at_);
  if (rest.empty()) refuse(format_text("the header ends where {} should stand", wanted));
  const size_t length = std::max<size_t>(rest.find_first_of(" \t\r\n,:{}[]\""), 1);
  refuse(format_text("'{}' stands where {} should", printable(rest.substr(0, length)), wanted));
}

void Scanner::skip_spaces() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

bool Scanner::take(char wanted) {
  skip_spaces();
  if (at_ >= text_.size() || text_[at_] != wanted) return false;
  ++at_;
  return true;
}

bool Scanner::next(char closing) {
  if (take(',')) return true;
  if (!take(closing)) refuse_next(format_text("',' or '{}'", closing));
  return false;
}

void Scanner::open(char bracket, std::string_view what, std::string_view kind) {
  if (!take(bracket)) refuse_next(format_text("{} ({})", what, kind));
}

void Scanner::end() {
  skip_spaces();
  if (at_ < text_.size()) refuse_next("the header's end");
}

std::string Scanner::string(std::string_view what) {
  if (!take('"')) refuse_next(format_text("{} (a string)", what));
  std::string out;
  for (;;) {
    size_t end = at_;
    while (end < text_.size() && is_plain(text_[end])) ++end;
    out += text_.substr(at_, end - at_);
    at_ = end;
    if (at_ >= text_.size()) refuse(format_text("the header ends inside {}", what));
    if (text_[at_] == '"') {
      ++at_;
      return out;
    }
    if (text_[at_] == '\\') {
      escape(out);
      continue;
    }
    const size_t length = utf8_length(text_.substr(at_));
    if (length == 1) refuse(format_text("a control character stands in {}", what));
    if (length == 0) refuse(format_text("{} is not UTF-8", what));
    out += text_.substr(at_, length);
    at_ += length;
  }
}

void Scanner::escape(std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const char name = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (const size_t found = kNames.find(name); name != '\0' && found != std::string_view::npos) {
    out += kMeanings[found];
    at_ += 2;
    return;
  }
  if (name != 'u') refuse("a backslash begins no escape that JSON has");
  uint32_t point = unit();
  if (point >= 0xDC00 && point < 0xE000) refuse("half of a surrogate pair stands alone");
  if (point >= 0xD800 && point < 0xDC00) {
    const uint32_t low = text_.substr(at_).starts_with("\\u") ? unit() : 0;
    if (low < 0xDC00 || low >= 0xE000) refuse("half of a surrogate pair stands alone");
    point = 0x10000 + ((point - 0xD800) << 10U) + (low - 0xDC00);
  }
  append_utf8(out, point);
}

uint32_t Scanner::unit() {
  const std::string_view digits = text_.substr(at_).substr(2, 4);
  uint32_t value = 0;
  const auto [stop, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() < 4 || error != std::errc() || stop != digits.data() + 4) {
    refuse("\\u is not followed by four hexadecimal digits");
  }
  at_ += 6;
  return value;
}

int64_t Scanner::whole_number(std::string_view what) {
  skip_spaces();
  const std::string_view rest = text_.substr(at_);
  const std::string_view word =
      rest.substr(0, std::min(rest.find_first_of(" \t\r\n,:{}[]\""), rest.size()));
  if (word.empty() || (!is_digit(word[0]) && word[0] != '-')) {
    refuse_next(format_text("{} (a whole number)", what));
  }
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const auto refuse_it = [&](std::string_view fault) {
    refuse(format_text("{} {} is {}", what, printable(word), fault));
  };
  if (error == std::errc::result_out_of_range) {
    refuse_it("larger than 2^63 - 1");
  }
  if (word[0] == '-') refuse_it("negative");
  if (stop != word.data() + word.size() || (word.size() > 1 && word[0] == '0')) {
    refuse_it("no whole number");
  }
  at_ += word.size();
  return value;
}

}  // namespace outrigger::checkpoint
