// SPDX-License-Identifier: Apache-2.0
// What a large file asks of the disk: each byte once, whole pages of memory and file while it goes
// past the cache, and durable when all of it is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "core/checkpoint/bulk_file.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr BulkFile::Sizes kChunks{2 * BulkFile::kPage, 0};

// A disk that takes its time, and looks at what it is given when it is done with it.
class Disk : public FaultyFiles {
 public:
  explicit Disk(std::chrono::microseconds pause)
      : FaultyFiles([](int64_t, Operation) { return 0; }), pause_(pause) {}

  ssize_t write(int fd, const void* data, size_t bytes, off_t offset) override {
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
      synced_ = false;
      if (direct_) {
        const auto address = reinterpret_cast<uintptr_t>(data);
        whole_pages_ = whole_pages_ && address % BulkFile::kPage == 0 &&
                       bytes % BulkFile::kPage == 0 && offset % BulkFile::kPage == 0;
      }
    }
    std::this_thread::sleep_for(pause_);
    const ssize_t done = FaultyFiles::write(fd, data, bytes, offset);
    const std::lock_guard lock(mutex_);
    --under_way_;
    bytes_ += done;
    for (auto& [at, end] : written_) {
      twice_ = twice_ || (at < offset + done && offset < end);
    }
    written_[offset] = offset + done;
    return done;
  }
  int set_direct(int /*fd*/, bool direct) override {
    const std::lock_guard lock(mutex_);
    direct_ = direct;
    return 0;
  }
  int sync(int /*fd*/) override {
    const std::lock_guard lock(mutex_);
    synced_ = under_way_ == 0;
    return 0;
  }
  int close(int fd) override {
    const std::lock_guard lock(mutex_);
    closed_synced_ = synced_;
    return FaultyFiles::close(fd);
  }
  // Of the file that was closed last, `bytes` long.
  void expect_sound(int64_t bytes, bool synced_at_close) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(bytes_, bytes);
    EXPECT_FALSE(twice_) << "a byte was written twice";
    EXPECT_TRUE(whole_pages_) << "past the cache, something is no whole page";
    EXPECT_EQ(closed_synced_, synced_at_close) << "not durable when it was closed";
    EXPECT_EQ(under_way_, 0);
  }

 private:
  const std::chrono::microseconds pause_;
  std::mutex mutex_;  // guards all below
  int under_way_ = 0;
  int64_t bytes_ = 0;
  bool direct_ = false, twice_ = false, whole_pages_ = true, synced_ = true;
  bool closed_synced_ = false;
  std::map<int64_t, int64_t> written_;  // begin → end
};

std::string numbered(int64_t count) {
  std::string text(static_cast<size_t>(count), '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 4096 * 7);
  return text;
}

// 20 chunks and more: each buffer is used again.
constexpr int64_t kLengths[] = {45 * BulkFile::kPage, 45 * BulkFile::kPage + 5};

TEST(BulkFileOrder, CopiesAreWrittenOnceAndDurable) {
  for (const int64_t bytes : kLengths) {
    const std::string text = numbered(bytes);
    const TemporaryFolder folder;
    Disk disk(std::chrono::microseconds(700));
    {
      Folder opened = folder.open(disk);
      BulkFile file(opened.create_file("f"), bytes, kChunks);
      for (int64_t at = 0; at < bytes; at += 3000) {
        const auto count = static_cast<size_t>(std::min<int64_t>(3000, bytes - at));
        file.write(at, bytes_of_text(text).subspan(static_cast<size_t>(at), count));
      }
      file.finish();
      disk.expect_sound(bytes, true);
    }
    EXPECT_TRUE(read_text(folder / "f") == text);
  }
}

// What is not finished can be given up while the disk works.
TEST(BulkFileOrder, IsGivenUp) {
  const std::string text = numbered(30 * BulkFile::kPage);
  const TemporaryFolder folder;
  Disk disk(std::chrono::milliseconds(5));
  {
    Folder opened = folder.open(disk);
    BulkFile file(opened.create_file("f"), 30 * BulkFile::kPage, kChunks);
    file.write(0, bytes_of_text(text).first(9 * BulkFile::kPage));
  }
  Folder opened = folder.open(disk);
  EXPECT_TRUE(opened.has("f"));
}

// A disk that is slower than who writes holds them up: what is on its way stays bounded.
TEST(BulkFileOrder, WhoWritesWaitsForTheDisk) {
  const std::string text = numbered(60 * BulkFile::kPage);
  const TemporaryFolder folder;
  const auto gate =
      std::make_unique<std::mutex>();  // on the stack, ThreadSanitizer takes it for another test's
  std::atomic<int> written{0};
  FaultyFiles files([&](int64_t, Operation called) {
    if (called != Operation::write) return 0;
    const std::lock_guard lock(*gate);
    ++written;
    return 0;
  });
  Folder opened = folder.open(files);
  BulkFile file(opened.create_file("f"), 60 * BulkFile::kPage, kChunks);
  std::atomic<bool> all{false};
  std::unique_lock closed(*gate);
  std::thread writer([&] {
    file.write(0, bytes_of_text(text));
    all = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(all) << "30 chunks are on their way to a disk that takes none";
  closed.unlock();
  writer.join();
  file.finish();
  EXPECT_EQ(written, 30);
  EXPECT_TRUE(read_text(folder / "f") == text);
}

}  // namespace
}  // namespace outrigger::checkpoint::test
