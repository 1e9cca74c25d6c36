// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr std::string_view kHeader =
    R"({"__metadata__":{"k":"v"},"a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},)"
    R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}} )";

TEST(SafetensorsReader, ReadsAnyPart) {
  const TemporaryFolder temporary;
  write_text(temporary / "f", file_of(kHeader, "abcdefg"));
  const Reader reader(temporary.open(), "f");
  EXPECT_EQ(reader.metadata(), (Metadata{{"k", "v"}}));
  ASSERT_EQ(reader.entries().size(), 2U);
  EXPECT_EQ(reader.entries()[0], (Entry{"a", Dtype::bf16, {2, 1}, 0, 4}));
  EXPECT_EQ(reader.entries()[1], (Entry{"b", Dtype::u8, {3}, 4, 3}));
  EXPECT_EQ(read_tensor(reader, "b"), "efg");
  std::string two(2, '\0');
  reader.read(reader.at("a"), 2, std::as_writable_bytes(std::span(two)));
  EXPECT_EQ(two, "cd");
  for (const int64_t offset : {int64_t{-1}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    expect_error(OTR_E_ARGUMENT, {"'a' has 4 bytes"}, [&] {
      reader.read(reader.at("a"), offset, std::as_writable_bytes(std::span(two)));
    });
  }
}

TEST(SafetensorsReader, AnyOrderOfTheHeader) {
  const TemporaryFolder temporary;
  write_text(temporary / "f",
             file_of(R"({ "b" : {"data_offsets":[4 ,7],"shape" :[3], "dtype":"U8" },
    "z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}, "a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
                     "abcdefg"));
  const Reader reader(temporary.open(), "f");
  ASSERT_EQ(reader.entries().size(), 3U);
  EXPECT_EQ(reader.entries()[0].name, "a");
  EXPECT_EQ(reader.entries()[1].name, "z");
  EXPECT_EQ(reader.entries()[2].name, "b");
}

TEST(SafetensorsReader, AFileThatIsCutAnywhereIsRefused) {
  const TemporaryFolder temporary;
  const std::string whole = file_of(kHeader, "abcdefg");
  const Folder folder = temporary.open();
  for (size_t length = 0; length < whole.size(); ++length) {
    write_text(temporary / "f", whole.substr(0, length));
    expect_error(OTR_E_CORRUPT, {temporary / "f"}, [&] { const Reader reader(folder, "f"); });
  }
  write_text(temporary / "f", whole + "x");
  expect_error(OTR_E_CORRUPT, {"7 bytes of data", "has 8", "trailing"},
               [&] { const Reader reader(folder, "f"); });
}

// A file that was cut after it was opened.
TEST(SafetensorsReader, AFileThatShrinksIsNoticed) {
  const TemporaryFolder temporary;
  const std::string whole = file_of(kHeader, "abcdefg");
  write_text(temporary / "f", whole);
  const Reader reader(temporary.open(), "f");
  write_text(temporary / "f", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(read_tensor(reader, "a"), "abcd");
  expect_error(OTR_E_CORRUPT, {temporary / "f", "ends at byte"},
               [&] { (void)read_tensor(reader, "b"); });
}

// Each flip is refused, or it reads as other names, values or dtypes of the same sizes.
TEST(SafetensorsReader, NoBitOfTheHeaderMakesItReadElsewhere) {
  const TemporaryFolder temporary;
  const std::string whole = file_of(kHeader, "abcdefg");
  const Folder folder = temporary.open();
  int refused = 0, accepted = 0;
  for (size_t bit = 0; bit < 8 * (8 + kHeader.size()); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write_text(temporary / "f", flipped);
    try {
      const Reader reader(folder, "f");
      ++accepted;
      ASSERT_EQ(reader.entries().size(), 2U);
      EXPECT_EQ(reader.entries()[0].bytes, 4);
      EXPECT_EQ(reader.entries()[1].begin, 4);
      EXPECT_EQ(reader.entries()[1].bytes, 3);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.status(), OTR_E_CORRUPT) << error.what();
      EXPECT_NE(std::string(error.what()).find(temporary / "f"), std::string::npos);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(accepted, 60);
}

TEST(SafetensorsReader, AFailedReadIsReported) {
  const TemporaryFolder temporary;
  write_text(temporary / "f", file_of(kHeader, "abcdefg"));
  for (int n = 0; n < 2; ++n) {
    FaultyFiles files(failing(Operation::read, n, -EIO));
    expect_error(OTR_E_IO, {temporary / "f", "read it", "Input/output error"},
                 [&] { const Reader reader(temporary.open(files), "f"); });
  }
}

// Lengths that no file has: nothing of that size may be asked for.
TEST(SafetensorsReader, TheLengthIsCheckedFirst) {
  const TemporaryFolder temporary;
  for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 20, uint64_t{100'000'000},
                                uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::string text(sizeof length, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    write_text(temporary / "f", text + "{}");
    int reads = 0;
    FaultyFiles files([&](int64_t, Operation operation) {
      reads += operation == Operation::read ? 1 : 0;
      return 0;
    });
    expect_error(OTR_E_CORRUPT,
                 {temporary / "f", format_text("a header of {} bytes", length), "2 more"},
                 [&] { const Reader reader(temporary.open(files), "f"); });
    EXPECT_EQ(reads, 1);
  }
}

// A sparse file is as long as it says: the cap is what refuses it.
TEST(SafetensorsReader, TheCapIsTheOfficialOne) {
  const TemporaryFolder temporary;
  std::string header = "{}" + std::string(static_cast<size_t>(kMaxHeader) - 2, ' ');
  write_text(temporary / "f", file_of(header));
  EXPECT_TRUE(Reader(temporary.open(), "f").entries().empty());
  header += ' ';
  write_text(temporary / "f", file_of(header));
  expect_error(OTR_E_CORRUPT, {"100000001", "at most 100000000"},
               [&] { const Reader reader(temporary.open(), "f"); });
}

}  // namespace
}  // namespace outrigger::checkpoint::test
