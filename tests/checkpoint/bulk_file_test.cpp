// SPDX-License-Identifier: Apache-2.0
// Large files, with small chunks: every byte where it belongs, whatever the file system refuses.
#include "core/checkpoint/bulk_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr BulkFile::Sizes kSmall{2 * BulkFile::kPage, 0};

std::string some_bytes(int64_t count) {
  std::string text(static_cast<size_t>(count), '\0');
  uint32_t state = 12345;
  for (char& c : text) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return text;
}

// Two streams, as a file of two kinds of tensors is written: from its start, and from `middle` on.
void write_streams(BulkFile& file, const std::string& text, int64_t middle, int64_t step) {
  const auto bytes = static_cast<int64_t>(text.size());
  const auto write = [&](int64_t from, int64_t end) {
    const int64_t count = std::clamp<int64_t>(end - from, 0, step);
    file.write(from,
               bytes_of_text(text).subspan(static_cast<size_t>(from), static_cast<size_t>(count)));
    return from + count;
  };
  int64_t first = 0, second = middle;
  while (first < middle || second < bytes) {
    if (first < middle) first = write(first, middle);
    if (second < bytes) second = write(second, bytes);
  }
  file.finish();
}

void write_file(Files& files, const TemporaryFolder& folder, const std::string& text,
                int64_t middle, int64_t step) {
  Folder opened = folder.open(files);
  BulkFile file(opened.create_file("f"), static_cast<int64_t>(text.size()), kSmall);
  write_streams(file, text, middle, step);
}

TEST(BulkFile, HasEveryByte) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, BulkFile::kPage, BulkFile::kPage + 1,
                              7 * BulkFile::kPage - 1, 40 * BulkFile::kPage + 77}) {
    for (const int64_t middle : {int64_t{0}, bytes / 3, bytes}) {
      for (const int64_t step : {int64_t{1000}, int64_t{100'000}}) {
        SCOPED_TRACE(format_text("{} bytes, {} of the first, steps of {}", bytes, middle, step));
        const TemporaryFolder folder;
        const std::string text = some_bytes(bytes);
        write_file(posix_files(), folder, text, middle, step);
        EXPECT_TRUE(read_text(folder / "f") == text);
      }
    }
  }
}

// Some have no direct writes, some want other sizes for them, some write less than they are given.
TEST(BulkFile, GoesThroughTheCacheWhereItMust) {
  const std::string text = some_bytes(20 * BulkFile::kPage + 5);
  const auto expect_whole = [&](const FaultyFiles::Plan& plan) {
    const TemporaryFolder folder;
    FaultyFiles files(plan);
    write_file(files, folder, text, 9 * BulkFile::kPage + 1, 3000);
    EXPECT_TRUE(read_text(folder / "f") == text);
  };
  expect_whole(failing(Operation::set_direct, 0, -EINVAL));
  expect_whole(failing(Operation::allocate, 0, -EOPNOTSUPP));
  for (int64_t n = 0; n < 11; ++n) {
    SCOPED_TRACE(n);
    expect_whole(failing(Operation::write, n, -EINVAL));
    expect_whole(failing(Operation::write, n, FaultyFiles::kHalf));
    expect_whole(failing(Operation::write, n, -EINTR));
  }
}

TEST(BulkFile, EveryFailureIsSeen) {
  const std::string text = some_bytes(20 * BulkFile::kPage + 5);
  for (int64_t n = 0; n < 11; ++n) {
    SCOPED_TRACE(n);
    const TemporaryFolder folder;
    FaultyFiles files(failing(Operation::write, n, -EIO));
    expect_error(OTR_E_IO, {"/f: ", "Input/output error"},
                 [&] { write_file(files, folder, text, 9 * BulkFile::kPage + 1, 3000); });
  }
  const TemporaryFolder folder;
  FaultyFiles full(failing(Operation::allocate, 0, -ENOSPC));
  expect_error(OTR_E_IO, {"f: cannot reserve 81925 bytes for it", "No space left"},
               [&] { write_file(full, folder, text, 0, 3000); });
}

TEST(BulkFile, ManyPlacesAtATimeAreRefused) {
  const TemporaryFolder folder;
  Folder opened = folder.open();
  const std::string text = some_bytes(100);
  BulkFile file(opened.create_file("f"), 1000 * kSmall.chunk, kSmall);
  expect_error(OTR_E_INTERNAL, {"16 parts of it are begun"}, [&] {
    for (int64_t i = 0; i < 1000; ++i) file.write(i * kSmall.chunk, bytes_of_text(text));
  });
}

TEST(BulkFile, HoldsWhatItSays) {
  EXPECT_EQ(BulkFile::room_of(100), 0);
  EXPECT_EQ(BulkFile::room_of(int64_t{16} << 20), int64_t{20} << 20);
  EXPECT_EQ(BulkFile::room_of(int64_t{1} << 40), int64_t{64} << 20);
}

}  // namespace
}  // namespace outrigger::checkpoint::test
