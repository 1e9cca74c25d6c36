// SPDX-License-Identifier: Apache-2.0
#include "core/config/document.h"

#include "tests/config/support.h"

namespace outrigger::config {
namespace {

Fault document_fault(std::string_view text) {
  return fault_of([&] { (void)parse_document(text); });
}

TEST(Document, KnowsWhereEachKeyAndValueStands) {
  const Node root =
      parse_document("{\n  \"a\": 1,\n  \"é\": {\"b\" :\t[true, \"x\\\"y\"]}, \"c\": -2.5e1}");
  ASSERT_EQ(root.members.size(), 3U);
  EXPECT_EQ(root.at.line, 1);
  EXPECT_EQ(root.members[0].at.line, 2);
  EXPECT_EQ(root.members[0].at.column, 3);
  EXPECT_EQ(root.members[0].value.at.column, 8);
  const Node& inner = root.members[1].value;
  EXPECT_EQ(inner.at.column, 8);  // é is one column
  ASSERT_EQ(inner.members.size(), 1U);
  EXPECT_EQ(inner.members[0].at.column, 9);
  ASSERT_EQ(inner.members[0].value.items.size(), 2U);
  EXPECT_EQ(inner.members[0].value.items[0].at.column, 16);
  EXPECT_EQ(inner.members[0].value.items[1].at.column, 22);
  EXPECT_EQ(inner.members[0].value.items[1].scalar, "x\"y");
  EXPECT_EQ(inner.members[0].value.items[1].shown, "\"x\\\"y\"");
  EXPECT_EQ(root.members[2].at.column, 32);
  EXPECT_EQ(root.members[2].value.at.column, 37);
  EXPECT_EQ(root.members[2].value.scalar, -25.0);
}

TEST(Document, EmptyTextIsAnEmptyObject) {
  for (const std::string_view text : {"", " \n\t ", "{}", "\xEF\xBB\xBF", "\xEF\xBB\xBF{}"}) {
    const Node root = parse_document(text);
    EXPECT_EQ(root.kind, Kind::object);
    EXPECT_TRUE(root.members.empty());
  }
}

TEST(Document, ByteOrderMarkDoesNotMoveColumns) {
  expect_fault(engine_fault("\xEF\xBB\xBF{\"x\": 1}"), OTR_E_CONFIG,
               engine_fault("{\"x\": 1}").text);
}

TEST(Document, NamesWhatIsNotJson) {
  const struct {
    std::string_view text, error;
  } kCases[] = {
      {"{\"a\": 1, // one\n\"b\": 2}",
       "line 1, column 10: a comment; JSON has none, so remove it (text from // or # on, or "
       "between /* and */)"},
      {"{\n# x\n}",
       "line 2, column 1: a comment; JSON has none, so remove it (text from // or # on, or between "
       "/* and */)"},
      {"/* x */ {}",
       "line 1, column 1: a comment; JSON has none, so remove it (text from // or # on, or between "
       "/* and */)"},
      {"{\"a\": 1,\n}", "line 2, column 1: a comma before a closing bracket; remove the comma"},
      {"{\"a\": [1, ]}", "line 1, column 11: a comma before a closing bracket; remove the comma"},
      {"{\"a\": NaN}",
       "line 1, column 7: JSON has no NaN and no infinity; write a finite number, or leave the key "
       "out"},
      {"{\"a\": -Infinity}",
       "line 1, column 7: JSON has no NaN and no infinity; write a finite number, or leave the key "
       "out"},
      {"{\"a\": 1e999}",
       "line 1, column 7: 1e999 is too large for a double; write a finite number"},
      {"{\"a\": -1e999}",
       "line 1, column 7: -1e999 is too large for a double; write a finite number"},
      {"{\"a\": True}", "line 1, column 7: JSON writes true, false and null in small letters"},
      {"{'a': 1}", "line 1, column 2: a single quote; JSON strings stand between double quotes"},
      {"{\"a\": 1} {}", "line 1, column 10: {} stands behind the end of the text; remove it"},
      {"{\"a\": {",
       "line 1, column 8: the text ends before its last bracket is closed; add what is missing"},
      {"{\"a\": 1, \"b\": 2, \"a\": 3}",
       "line 1, column 18: the key \"a\" stands here for the second time; the first is at line 1, "
       "column 2; remove one of them"},
      {"{\"a\": \"\xC3\x28\"}",
       "line 1, column 9: a byte here is not UTF-8; save the text as UTF-8"},
      {"{\"a\": \"\xFF\"}", "line 1, column 8: a byte here is not UTF-8; save the text as UTF-8"},
      {"{\"a\": \"\n\"}",
       "line 1, column 8: a control character stands inside a string; write it as an escape such "
       "as \\n"},
      {"\xFF\xFE{", "line 1, column 1: the text is UTF-16; save it as UTF-8"},
      {std::string_view("{}\0{", 4),
       "a zero byte at offset 2; the reader would stop there, so remove it"},
  };
  for (const auto& c : kCases) expect_fault(document_fault(c.text), OTR_E_CONFIG, c.error);
}

TEST(Document, DuplicateKeysAreFoundAtAnyDepth) {
  expect_fault(
      document_fault("{\"x\": [{\"y\": 1,\n \"y\": 1}]}"), OTR_E_CONFIG,
      "line 2, column 2: the key \"y\" stands here for the second time; the first is at line 1, "
      "column 9; remove one of them");
  EXPECT_EQ(document_fault("{\"x\": {\"y\": 1}, \"z\": {\"y\": 1}}").status, OTR_OK);
  // An escape spells the same key.
  EXPECT_EQ(document_fault("{\"x\": 1, \"\\u0078\": 2}").status, OTR_E_CONFIG);
}

TEST(Document, DepthIsCapped) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(document_fault(nested(kMaxDepth)).status, OTR_OK);
  expect_fault(document_fault(nested(kMaxDepth + 1)), OTR_E_CONFIG,
               "line 1, column 33: brackets nest deeper than 32; flatten the text");
  EXPECT_EQ(document_fault(std::string(1000000, '[')).status, OTR_E_CONFIG);
  std::string objects;
  for (int i = 0; i < 200000; ++i) objects += "{\"\":";
  EXPECT_EQ(document_fault(objects).status, OTR_E_CONFIG);
}

TEST(Document, SizeAndNumberOfValuesAreCapped) {
  expect_fault_with(document_fault(std::string(kMaxBytes + 1, ' ')), OTR_E_CONFIG,
                    {"1048577 bytes"});
  EXPECT_EQ(document_fault(std::string(kMaxBytes, ' ')).status, OTR_OK);
  std::string many = "[0";
  for (size_t i = 0; i < kMaxValues; ++i) many += ",0";
  expect_fault_with(document_fault(many + "]"), OTR_E_CONFIG, {"more than 10000 values"});
}

// As many members as the caller wants, none twice.
TEST(Document, LargeObjects) {
  constexpr size_t kMembers = 200000;
  std::string text = "{";
  for (size_t i = 0; i < kMembers; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  const Caps caps{"it", size_t{1} << 24, kMembers + 1};
  EXPECT_EQ(parse_document(text + "}", caps).members.size(), kMembers);
  try {
    static_cast<void>(parse_document(text + ",\"77777\":1}", caps));
    ADD_FAILURE() << "a key twice is taken";
  } catch (const Error& error) {
    const std::string fault = error.what();
    EXPECT_NE(fault.find("\"77777\" stands here for the second time"), std::string::npos) << fault;
  }
  EXPECT_THROW(static_cast<void>(parse_document(text + "}", {"it", size_t{1} << 24, kMembers})),
               Error);
}

TEST(Document, MessagesStayPrintableAndShort) {
  EXPECT_EQ(printable("a\nb\tc\x7F"), "a?b?c?");
  EXPECT_EQ(printable("\xC3\xA9\xFF\xE2\x82"), "é???");
  EXPECT_EQ(printable("\xED\xA0\x80\xC0\xAF"), "?????");  // a surrogate, an overlong slash
  EXPECT_EQ(printable("12345", 3), "123…");
  const Fault fault = engine_fault("{\"" + std::string(100000, 'k') + "\": 1}");
  EXPECT_EQ(fault.status, OTR_E_CONFIG);
  EXPECT_LT(fault.text.size(), 300U);
}

}  // namespace
}  // namespace outrigger::config
