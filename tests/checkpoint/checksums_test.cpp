// SPDX-License-Identifier: Apache-2.0
// Checksums of blocks: what is read in any parts is what was written, or an error that says where
// it is not.
#include "core/checkpoint/checksums.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <random>

#include "core/base/error.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

std::string noise(size_t bytes) {
  std::minstd_rand random(11);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

constexpr size_t kBytes = 2 * kBlock + 12345;

// A file of one tensor, with its checksums.
struct Made {
  TemporaryFolder temporary;
  std::string text = noise(kBytes);
  std::vector<uint64_t> sums;
  Made() {
    Folder folder = temporary.open();
    Writer writer(folder, "f", {{"a", Dtype::u8, {kBytes}}}, {});
    writer.write(0, 0, bytes_of_text(text));
    writer.finish();
    Hasher hasher;
    hasher.add(bytes_of_text(text));
    sums = hasher.take();
  }
};

TEST(Checksums, AreOfBlocksHoweverTheBytesCome) {
  const Made made;
  ASSERT_EQ(made.sums.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const std::string_view block = std::string_view(made.text).substr(i * kBlock, kBlock);
    EXPECT_EQ(made.sums[i], XXH3_64bits(block.data(), block.size()));
  }
  std::minstd_rand random(3);
  Hasher hasher;
  for (int round = 0; round < 20; ++round) {
    for (size_t at = 0; at < kBytes;) {
      const size_t n = std::min(kBytes - at, size_t{1} + random() % (3 * kBlock / 2));
      hasher.add(bytes_of_text(made.text).subspan(at, n));
      at += n;
    }
    ASSERT_EQ(hasher.take(), made.sums) << round;
  }
  EXPECT_TRUE(hasher.take().empty()) << "of no bytes";
}

TEST(Checksums, AnyPartIsReadAsItWasWritten) {
  const Made made;
  const Reader reader(made.temporary.open(), "f");
  CheckedTensor tensor(reader, reader.at("a"), made.sums);
  std::minstd_rand random(5);
  for (int round = 0; round < 300; ++round) {
    const size_t at = random() % kBytes, n = random() % (kBytes - at);
    std::string out(n, ' ');
    tensor.read(static_cast<int64_t>(at), std::as_writable_bytes(std::span(out)));
    ASSERT_EQ(out, made.text.substr(at, n)) << at << " " << n;
  }
}

TEST(Checksums, ADamagedBlockIsRefusedAndOthersAreNot) {
  Made made;
  const std::string path = made.temporary / "f";
  std::string file = read_text(path);
  const size_t begin = file.size() - kBytes;
  file[begin + kBlock + 77] ^= 1;
  write_text(path, file);
  const Reader reader(made.temporary.open(), "f");
  CheckedTensor tensor(reader, reader.at("a"), made.sums);
  std::string out(100, ' ');
  const auto bytes = std::as_writable_bytes(std::span(out));
  tensor.read(kBlock - 100, bytes);
  EXPECT_EQ(out, made.text.substr(kBlock - 100, 100));
  for (int i = 0; i < 2; ++i) {  // nor the second time
    expect_error(OTR_E_CORRUPT, {"/f", "'a'", "bytes 1048576 to 2097152", "checksum"},
                 [&] { tensor.read(2 * kBlock - 100, bytes); });
  }
  tensor.read(2 * kBlock, bytes);
  EXPECT_EQ(out, made.text.substr(2 * kBlock, 100));
}

TEST(Checksums, BlocksCoverAFileInItsOrder) {
  // Larger elements come first in a file, and an empty tensor has no block.
  const Outline outline({{"bytes", Dtype::u8, {kBlock + 1}},
                         {"none", Dtype::f32, {0}},
                         {"floats", Dtype::f32, {kBlock / 4 * 2}}},
                        {});
  const std::vector<TensorBlock> blocks = blocks_of(outline);
  ASSERT_EQ(blocks.size(), 4U);
  int64_t place = outline.data_begin();
  for (const TensorBlock& block : blocks) {
    EXPECT_EQ(outline.place_of(block.tensor) + block.offset, place);
    EXPECT_EQ(block.offset % kBlock, 0);
    place += block.bytes;
  }
  EXPECT_EQ(place, outline.file_bytes);
  EXPECT_EQ(blocks[0].tensor, 2U);
  EXPECT_EQ(blocks[3].bytes, 1);
}

}  // namespace
}  // namespace outrigger::checkpoint::test
