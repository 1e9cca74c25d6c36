// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kPieces = 64, kPiece = 1000;

std::string piece(size_t tensor, int64_t number) {
  return std::string(kPiece, static_cast<char>(tensor * 31 + static_cast<size_t>(number)));
}

template <typename Body>
void in_threads(const Body& body) {
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
  for (std::thread& thread : threads) thread.join();
}

TEST(SafetensorsThreads, WriteAndReadOneFile) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  Writer writer(folder, "f",
                {{"a", Dtype::u8, {kPieces, kPiece}}, {"b", Dtype::i8, {kPieces, kPiece}}}, {});
  in_threads([&](int t) {
    for (int64_t i = t; i < kPieces; i += kThreads) {
      for (const size_t tensor : {0, 1}) {
        const std::string text = piece(tensor, i);
        writer.write(tensor, i * kPiece, bytes_of_text(text));
      }
    }
  });
  writer.finish();

  const Reader reader(folder, "f");
  std::atomic<int> wrong = 0;
  in_threads([&](int) {
    std::string out(kPiece, '\0');
    for (int64_t i = 0; i < kPieces; ++i) {
      for (const size_t tensor : {0, 1}) {
        const Entry& entry = reader.at(tensor == 0 ? "a" : "b");
        reader.read(entry, i * kPiece, std::as_writable_bytes(std::span(out)));
        if (out != piece(tensor, i)) ++wrong;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

// Past the cache: threads take the next part, so that several share a chunk, and whoever is slow
// with one holds its buffer.
TEST(SafetensorsThreads, WriteOneLargeFile) {
  constexpr int64_t kBytes = 300 * BulkFile::kPage + 11, kPart = 3000;
  std::string text(kBytes, '\0');
  uint32_t state = 5;
  for (char& c : text) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder temporary;
    Folder folder = temporary.open();
    BulkFile file(folder.create_file("f"), kBytes, {2 * BulkFile::kPage, 0});
    std::atomic<int64_t> next{0};
    in_threads([&](int t) {
      for (int64_t at = 0; (at = kPart * next++) < kBytes;) {
        const int64_t count = std::min(kPart, kBytes - at);
        if (t == 0 && round % 2 == 1) std::this_thread::yield();
        file.write(
            at, bytes_of_text(text).subspan(static_cast<size_t>(at), static_cast<size_t>(count)));
      }
    });
    file.finish();
    ASSERT_TRUE(read_text(temporary / "f") == text) << round;
  }
}

}  // namespace
}  // namespace outrigger::checkpoint::test
