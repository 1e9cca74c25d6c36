// SPDX-License-Identifier: Apache-2.0
// Headers that somebody made to harm, or made wrong.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/table.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

struct Hostile {
  std::string header;
  int64_t data_bytes;
  std::string_view words[3];
  int32_t status = OTR_E_CORRUPT;
};

std::string entry(std::string_view fields, std::string_view name = "a") {
  return format_text(R"("{}":{{{}}})", name, fields);
}

std::string one(std::string_view fields) { return "{" + entry(fields) + "}"; }

std::string shaped(std::string_view shape, std::string_view offsets,
                   std::string_view dtype = "U8") {
  return format_text(R"("dtype":"{}","shape":[{}],"data_offsets":[{}])", dtype, shape, offsets);
}

void expect_all(const std::vector<Hostile>& table) {
  for (const Hostile& hostile : table) {
    SCOPED_TRACE(hostile.header.substr(0, 300));
    expect_error(hostile.status,
                 {"some/file", hostile.words[0], hostile.words[1], hostile.words[2]},
                 [&] { (void)parse_table(hostile.header, hostile.data_bytes, "some/file"); });
  }
}

TEST(HostileHeader, Syntax) {
  expect_all({
      {"", 0, {"does not begin with '{'"}},
      {" {}", 0, {"does not begin with '{'"}},
      {"\xEF\xBB\xBF{}", 0, {"does not begin with '{'"}},
      {"[]", 0, {"does not begin with '{'"}},
      {"null", 0, {"does not begin with '{'"}},
      {"{", 0, {"the header ends where a key", "byte 1"}},
      {"{}}", 0, {"'}' stands where the header's end", "byte 2"}},
      {"{}{}", 0, {"'{' stands where the header's end"}},
      {std::string("{}\0", 3), 0, {"stands where the header's end"}},
      {"{} \xC2\xA0", 0, {"stands where the header's end"}},
      {"{\"a\"}", 0, {"'}' stands where ':'"}},
      {"{\"a\":}", 0, {"tensor 'a'", "'}' stands where a tensor's entry (an object)"}},
      {"{\"a", 0, {"the header ends inside a key"}},
      {"{\"a\\", 0, {"a backslash begins no escape"}},
      {"{\"\\x\":1}", 0, {"a backslash begins no escape"}},
      {"{\"\\u12\":1}", 0, {"four hexadecimal digits"}},
      {"{\"\\u-123\":1}", 0, {"four hexadecimal digits"}},
      {"{\"\\ud800\":1}", 0, {"half of a surrogate pair"}},
      {"{\"\\ud800\\u0041\":1}", 0, {"half of a surrogate pair"}},
      {"{\"\\udc00\":1}", 0, {"half of a surrogate pair"}},
      {"{\"\xFF\":1}", 0, {"a key is not UTF-8", "byte 2"}},
      {"{\"\xC0\xAF\":1}", 0, {"a key is not UTF-8"}},
      {"{\"\xED\xA0\x80\":1}", 0, {"a key is not UTF-8"}},
      {"{\"\xF4\x90\x80\x80\":1}", 0, {"a key is not UTF-8"}},
      {"{\"a\nb\":1}", 0, {"a control character stands in a key"}},
      {"{\"a\t\":1}", 0, {"a control character stands in a key"}},
      {std::string("{\"a\0\":1}", 8), 0, {"a control character stands in a key"}},
      {"{a:1}", 0, {"'a' stands where a key"}},
      {"{'a':1}", 0, {"stands where a key"}},
      {"{//\n}", 0, {"stands where a key"}},
      {"{" + entry(shaped("1", "0,1")) + ",}", 1, {"'}' stands where a key"}},
      {"{" + entry(shaped("1", "0,1")) + " " + entry(shaped("1", "1,2"), "b") + "}",
       2,
       {"stands where ',' or '}'"}},
      {one(shaped("1,", "0,1")), 1, {"tensor 'a'", "']' stands where an extent"}},
      {one(shaped(",1", "0,1")), 1, {"tensor 'a'", "',' stands where an extent"}},
      {one(R"("dtype":"U8","shape":[1},"data_offsets":[0,1])"), 1, {"'}' stands where ',' or ']'"}},
      {std::string(1 << 20, '{'), 0, {"'{' stands where a key"}},
      {"{\"a\":" + std::string(1 << 20, '['), 0, {"'[' stands where a tensor's entry"}},
      {one("\"shape\":" + std::string(1 << 20, '[')), 0, {"'[' stands where an extent"}},
      {"{\"" + std::string(1 << 20, 'a'), 0, {"the header ends inside a key"}},
  });
}

TEST(HostileHeader, Fields) {
  const std::string good = shaped("1", "0,1");
  expect_all({
      {"{\"a\":null}", 0, {"tensor 'a'", "'null' stands where a tensor's entry"}},
      {"{\"a\":[\"U8\",[1],[0,1]]}", 1, {"'[' stands where a tensor's entry"}},
      {"{" + entry(good) + "," + entry(good) + "}", 1, {"overlap", "tensor 'a'"}},
      {"{" + entry(shaped("0", "0,0")) + "," + entry(shaped("0", "0,0")) + "}",
       0,
       {"tensor 'a' stands twice"}},
      {"{" + entry(shaped("1", "0,1"), "\\u0061") + "," + entry(shaped("1", "1,2")) + "}",
       2,
       {"tensor 'a' stands twice"}},
      {one(good + R"(,"dtype":"U8")"), 1, {"tensor 'a'", "dtype stands twice"}},
      {one(good + R"(,"shape":[1])"), 1, {"shape stands twice"}},
      {one(good + R"(,"data_offsets":[0,1])"), 1, {"data_offsets stands twice"}},
      {one(good + R"(,"strides":[1])"), 1, {"tensor 'a'", "field 'strides' is unknown"}},
      {one(good + R"(,"":0)"), 1, {"field '' is unknown"}},
      {one(R"("shape":[1],"data_offsets":[0,1])"), 1, {"tensor 'a'", "dtype is missing"}},
      {one(R"("dtype":"U8","data_offsets":[0,1])"), 1, {"shape is missing"}},
      {one(R"("dtype":"U8","shape":[1])"), 1, {"data_offsets is missing"}},
      {one(""), 1, {"dtype is missing"}},
      {one(shaped("1", "0,1", "F31")), 1, {"tensor 'a'", "dtype 'F31' is unknown"}},
      {one(shaped("1", "0,1", "u8")), 1, {"dtype 'u8' is unknown"}},
      {one(shaped("1", "0,1", "")), 1, {"dtype '' is unknown"}},
      {one(shaped("2", "0,1", "F4")),
       1,
       {"tensor 'a'", "F4", "smaller than a byte"},
       OTR_E_UNSUPPORTED},
      {one(shaped("4", "0,3", "F6_E2M3")), 3, {"F6_E2M3"}, OTR_E_UNSUPPORTED},
      {one(shaped("4", "0,3", "F6_E3M2")), 3, {"F6_E3M2"}, OTR_E_UNSUPPORTED},
      {one(R"("dtype":{"U8":null},"shape":[1],"data_offsets":[0,1])"),
       1,
       {"'{' stands where the dtype (a string)"}},
      {one(R"("dtype":3,"shape":[1],"data_offsets":[0,1])"), 1, {"'3' stands where the dtype"}},
      {one(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), 1, {"'1' stands where the shape"}},
      {one(R"("dtype":"U8","shape":[1],"data_offsets":{})"),
       1,
       {"stands where data_offsets (a list)"}},
  });
}

TEST(HostileHeader, Metadata) {
  expect_all({
      {R"({"__metadata__":null})", 0, {"__metadata__", "'null' stands where the metadata"}},
      {R"({"__metadata__":[]})", 0, {"stands where the metadata"}},
      {R"({"__metadata__":{"a":1}})", 0, {"__metadata__", "'1' stands where the value of 'a'"}},
      {R"({"__metadata__":{"a":null}})", 0, {"'null' stands where the value of 'a'"}},
      {R"({"__metadata__":{"a":{}}})", 0, {"'{' stands where the value of 'a'"}},
      {R"({"__metadata__":{"a":"1","a":"1"}})", 0, {"key 'a' stands twice"}},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__ stands twice"}},
  });
  std::string many = R"({"__metadata__":{)";
  for (int i = 0; i < 65537; ++i) many += format_text(R"({}"{}":"")", i > 0 ? "," : "", i);
  expect_all({{many + "}}", 0, {"more than 65536 keys"}}});
}

TEST(HostileHeader, Numbers) {
  expect_all({
      {one(shaped("-1", "0,1")), 1, {"tensor 'a'", "an extent -1 is negative"}},
      {one(shaped("-0", "0,0")), 0, {"an extent -0 is negative"}},
      {one(shaped("1.0", "0,1")), 1, {"an extent 1.0 is no whole number"}},
      {one(shaped("1e0", "0,1")), 1, {"an extent 1e0 is no whole number"}},
      {one(shaped("01", "0,1")), 1, {"an extent 01 is no whole number"}},
      {one(shaped("0x1", "0,1")), 1, {"an extent 0x1 is no whole number"}},
      {one(shaped("+1", "0,1")), 1, {"'+1' stands where an extent"}},
      {one(shaped("NaN", "0,1")), 1, {"'NaN' stands where an extent"}},
      {one(shaped("true", "0,1")), 1, {"'true' stands where an extent"}},
      {one(shaped("\"1\"", "0,1")), 1, {"stands where an extent (a whole number)"}},
      {one(shaped("9223372036854775808", "0,1")), 1, {"9223372036854775808 is larger than 2^63"}},
      {one(shaped("18446744073709551617", "0,1")), 1, {"is larger than 2^63"}},
      {one(shaped("1", "0,18446744073709551617")), 1, {"an offset 18446744073709551617"}},
      {one(shaped("1", "-1,0")), 1, {"an offset -1 is negative"}},
      {one(shaped("1", "0,1.5")), 1, {"an offset 1.5 is no whole number"}},
      {one(shaped("4294967296,4294967296", "0,0")),
       0,
       {"tensor 'a'", "2^56", "[4294967296, 4294967296]"}},
      {one(shaped("4294967296,4294967296,0", "0,0")), 0, {"2^56"}},
      {one(shaped("9223372036854775807,2", "0,1")), 1, {"2^56"}},
      {one(shaped("72057594037927937", "0,1")), 1, {"2^56"}},
      {one(shaped("1" + std::string(2 * 64, ',')
                            .replace(0, 128,
                                     []() {
                                       std::string ones;
                                       for (int i = 0; i < 64; ++i) ones += ",1";
                                       return ones;
                                     }()),
                  "0,1")),
       1,
       {"tensor 'a'", "more than 64 extents"}},
  });
}

TEST(HostileHeader, Offsets) {
  const auto two = [](std::string_view first, std::string_view second) {
    return "{" + entry(shaped("4", first)) + "," + entry(shaped("4", second), "b") + "}";
  };
  expect_all({
      {one(shaped("1", "")), 1, {"data_offsets has 0 numbers, not 2"}},
      {one(shaped("1", "0")), 1, {"data_offsets has 1 numbers, not 2"}},
      {one(shaped("1", "0,1,2")), 1, {"data_offsets has more than 2"}},
      {one(shaped("1", "1,0")), 1, {"tensor 'a'", "[1, 0] end before they begin"}},
      {one(shaped("1", "9223372036854775807,0")), 1, {"end before they begin"}},
      {one(shaped("2", "0,1")), 1, {"tensor 'a'", "[2] of U8 is 2 bytes", "[0, 1] are 1"}},
      {one(shaped("1", "0,2")), 2, {"[1] of U8 is 1 bytes"}},
      {one(shaped("", "0,2", "F32")), 2, {"[] of F32 is 4 bytes"}},
      {one(shaped("0", "0,1")), 1, {"[0] of U8 is 0 bytes"}},
      {one(shaped("1", "0,9223372036854775807")), 1, {"[1] of U8 is 1 bytes"}},
      {one(shaped("1", "1,2")), 2, {"tensor 'a'", "a hole", "bytes 0 to 1"}},
      {two("0,4", "5,9"), 9, {"tensor 'b'", "a hole", "bytes 4 to 5"}},
      {two("0,4", "3,7"), 7, {"tensor 'b'", "[3, 7] overlap", "'a', [0, 4]"}},
      {two("3,7", "0,4"), 7, {"tensor 'a'", "[3, 7] overlap", "'b', [0, 4]"}},
      {two("0,4", "0,4"), 4, {"overlap"}},
      {two("0,4", "0,4"), 8, {"overlap"}},
      {two("0,4", "4,8"), 9, {"8 bytes of data", "has 9", "trailing"}},
      {two("0,4", "4,8"), 7, {"8 bytes of data", "has 7", "cut short"}},
      {"{}", 1, {"0 bytes of data", "has 1", "trailing"}},
      {"{" + entry(shaped("4", "0,4")) + "," + entry(shaped("0", "2,2"), "z") + "}",
       4,
       {"tensor 'z'", "[2, 2] overlap"}},
      {"{" + entry(shaped("4", "0,4")) + "," + entry(shaped("0", "5,5"), "z") + "}",
       4,
       {"tensor 'z'", "a hole"}},
      {one(shaped("0", "9223372036854775807,9223372036854775807")), 0, {"a hole"}},
  });
}

TEST(HostileHeader, WhatIsLegalIsTaken) {
  for (const auto& [header, data_bytes] : {
           std::pair<std::string, int64_t>{"{}", 0},
           {"{ \t\r\n} \t\r\n", 0},
           {R"({"__metadata__":{}})", 0},
           {one(shaped("", "0,1")), 1},
           {one(shaped("0,9223372036854775807", "0,0")), -1},
           {one(shaped("72057594037927936", "0,72057594037927936")), int64_t{1} << 56},
           {"{" + entry(shaped("0", "0,0"), "\\u0000\\ud83d\\udef6\\/") + "}", 0},
       }) {
    if (data_bytes < 0) {
      EXPECT_THROW((void)parse_table(header, 0, "f"), Error);  // stricter than the official reader
    } else {
      EXPECT_NO_THROW((void)parse_table(header, data_bytes, "f")) << header;
    }
  }
}

}  // namespace
}  // namespace outrigger::checkpoint::test
