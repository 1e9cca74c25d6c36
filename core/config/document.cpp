// SPDX-License-Identifier: Apache-2.0
#include "core/config/document.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::config {
namespace {

// Follows a JSON reader through its text: the reader says what it found, the cursor knows where.
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

// What is likely meant by text that no JSON value starts with.
std::string diagnose(std::string_view rest, char separator, std::string_view detail) {
  const auto starts = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words,
                               [&](std::string_view word) { return rest.starts_with(word); });
  };
  if (detail.find("number overflow") != std::string_view::npos) {
    return format_text("{} is too large for a double; write a finite number",
                       printable(rest.substr(0, rest.find_first_of(" \t\r\n,}]"))));
  }
  if (detail.find("UTF-8") != std::string_view::npos) {
    return "a byte here is not UTF-8; save the text as UTF-8";
  }
  if (detail.find("control character") != std::string_view::npos) {
    return "a control character stands inside a string; write it as an escape such as \\n";
  }
  if (rest.empty()) return "the text ends before its last bracket is closed; add what is missing";
  if (starts({"//", "/*", "#"})) {
    return "a comment; JSON has none, so remove it (text from // or # on, or between /* and */)";
  }
  if (starts({"NaN", "nan", "Inf", "inf", "+Inf", "+inf", "-Inf", "-inf", "-NaN", "-nan"})) {
    return "JSON has no NaN and no infinity; write a finite number, or leave the key out";
  }
  if (starts({"True", "False", "None", "TRUE", "FALSE", "NULL"})) {
    return "JSON writes true, false and null in small letters";
  }
  if (starts({"'"})) return "a single quote; JSON strings stand between double quotes";
  if (separator == ',' && starts({"}", "]"})) {
    return "a comma before a closing bracket; remove the comma";
  }
  if (detail.find("expected end of input") != std::string_view::npos) {
    return format_text("{} stands behind the end of the text; remove it", printable(rest));
  }
  const size_t reason = detail.find("syntax error ");
  if (reason != std::string_view::npos) detail.remove_prefix(reason + 13);
  return format_text("not JSON: {}", printable(detail, 160));
}

// Builds the tree from the reader's events.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const Caps& caps) : cursor_(text), caps_(caps) {}

  Node take_root() { return std::move(root_); }

  bool null() override { return scalar(Kind::null, nullptr); }
  bool boolean(bool value) override { return scalar(Kind::boolean, value); }
  bool number_integer(number_integer_t value) override { return scalar(Kind::integer, value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(Kind::integer, value); }
  bool number_float(number_float_t value, const string_t&) override {
    return scalar(Kind::number, value);
  }
  bool string(string_t& value) override { return scalar(Kind::text, std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(size_t) override { return open(Kind::object); }
  bool start_array(size_t) override { return open(Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    cursor_.take();
    const Position at = cursor_.position();
    std::vector<Member>& members = open_.back().node->members;
    if (members.size() >= caps_.values) {
      fail(OTR_E_CONFIG, "{}: an object has more than {} members; shorten it", line_of(at),
           caps_.values);
    }
    if (!open_.back().names.insert(name).second) {
      const auto twin = std::ranges::find(members, name, &Member::name);
      fail(OTR_E_CONFIG,
           "{}: the key \"{}\" stands here for the second time; the first is at {}; remove one of "
           "them",
           line_of(at), printable(name), line_of(twin->at));
    }
    members.push_back({std::move(name), at, {}});
    return true;
  }

  bool parse_error(size_t bytes_read, const std::string&,
                   const nlohmann::detail::exception& reason) override {
    const std::string_view detail = reason.what();
    const bool inside = detail.find("invalid string") != std::string_view::npos;
    std::string_view rest = cursor_.peek();
    const char separator = cursor_.separator();
    if (inside && bytes_read > 0) cursor_.go_to(bytes_read - 1);
    const Position at = cursor_.position();
    fail(OTR_E_CONFIG, "{}: {}", line_of(at), diagnose(rest, separator, detail));
  }

 private:
  Node& place() {
    if (++values_ > caps_.values) {
      fail(OTR_E_CONFIG, "{}: {} has more than {} values, and needs far fewer: shorten it",
           line_of(cursor_.position()), caps_.what, caps_.values);
    }
    if (open_.empty()) return root_;
    Node& parent = *open_.back().node;
    if (parent.kind == Kind::object) return parent.members.back().value;
    return parent.items.emplace_back();
  }

  template <typename Value>
  bool scalar(Kind kind, Value&& value) {
    const std::string_view token = cursor_.take();
    Node& node = place();
    node.kind = kind;
    node.at = cursor_.position();
    node.scalar = std::forward<Value>(value);
    node.shown = printable(token);
    return true;
  }

  bool open(Kind kind) {
    cursor_.take();
    const Position at = cursor_.position();
    if (open_.size() >= kMaxDepth) {
      fail(OTR_E_CONFIG, "{}: brackets nest deeper than {}; flatten the text", line_of(at),
           kMaxDepth);
    }
    Node& node = place();
    node.kind = kind;
    node.at = at;
    node.shown = kind == Kind::object ? "an object" : "a list";
    open_.push_back({&node, {}});
    return true;
  }

  bool close() {
    cursor_.take();
    open_.pop_back();
    return true;
  }

  Cursor cursor_;
  const Caps& caps_;
  Node root_;
  struct Open {
    Node* node;  // stays valid: a container grows only while it is the innermost one
    std::set<std::string, std::less<>> names;  // of its members; no text makes it slow
  };
  std::vector<Open> open_;
  size_t values_ = 0;
};

}  // namespace

Node parse_document(std::string_view text, const Caps& caps) {
  if (text.size() > caps.bytes) {
    fail(OTR_E_CONFIG, "{} has {} bytes; at most {} are read; shorten it", caps.what, text.size(),
         caps.bytes);
  }
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    fail(OTR_E_CONFIG, "line 1, column 1: the text is UTF-16; save it as UTF-8");
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    Node empty;
    empty.kind = Kind::object;
    return empty;
  }
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    fail(OTR_E_CONFIG, "a zero byte at offset {}; the reader would stop there, so remove it", zero);
  }
  Builder builder(text, caps);
  // All failures throw from the builder's callbacks.
  (void)Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take_root();
}

Json to_json(const Node& node) {
  if (node.kind == Kind::list) {
    Json list = Json::array();
    for (const Node& item : node.items) list.push_back(to_json(item));
    return list;
  }
  if (node.kind == Kind::object) {
    Json object = Json::object();
    for (const Member& member : node.members) object[member.name] = to_json(member.value);
    return object;
  }
  return node.scalar;
}

std::string line_of(Position at) { return format_text("line {}, column {}", at.line, at.column); }

}  // namespace outrigger::config
