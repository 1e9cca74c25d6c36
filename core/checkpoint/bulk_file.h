// SPDX-License-Identifier: Apache-2.0
// A large new file, each byte of which is written once and nearly from front to back: past the
// system's cache where the file system can: the disk works while the rest is still made, and what
// is read more than a checkpoint stays in the cache.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/serial_worker.h"
#include "core/checkpoint/files.h"

namespace outrigger::checkpoint {

class BulkFile {
 public:
  static constexpr int64_t kPage = 4096;  // direct writes are of whole ones, in memory and file
  struct Sizes {
    int64_t chunk = int64_t{4} << 20;         // a write; whole pages
    int64_t direct_from = int64_t{16} << 20;  // smaller files go through the cache
  };
  // What write() holds at most.
  static constexpr int64_t kBuffers = 16;
  [[nodiscard]] static int64_t room_of(int64_t bytes) { return room_of(bytes, {}); }
  [[nodiscard]] static int64_t room_of(int64_t bytes, const Sizes& sizes);

  // Throws OTR_E_IO where there is no room for so many bytes.
  BulkFile(File file, int64_t bytes, const Sizes& sizes);
  ~BulkFile();

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

  // Any thread; several at a time may write, each data of its own. Data goes on where other data
  // ended, at few places at a time: OTR_E_INTERNAL where more than kBuffers chunks are begun and
  // nobody goes on with one. Throws what an earlier write failed with.
  void write(int64_t offset, std::span<const std::byte> data);
  // All bytes came. The file is durable then, its name is not.
  void finish();

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Buffer = std::unique_ptr<std::byte, Free>;
  struct Chunk {
    Buffer buffer;
    int64_t filled = 0;
  };
  // Job number `job` of a lane writes it.
  struct Flight {
    size_t lane;
    uint64_t job;
    Buffer buffer;
  };
  using Lock = std::unique_lock<std::mutex>;
  [[nodiscard]] Chunk& chunk_at(int64_t number, Lock& lock);
  [[nodiscard]] Buffer take_buffer(Lock& lock);
  void fill(Chunk& chunk, int64_t into, std::span<const std::byte> data, Lock& lock);
  void land_one();
  void submit(int64_t offset, std::span<const std::byte> data, Buffer buffer);

  const Sizes sizes_;
  const int64_t bytes_;
  File file_;
  bool direct_;
  std::mutex mutex_;  // guards all below
  std::condition_variable filled_;
  int32_t filling_ = 0;  // threads that copy into a chunk, without the mutex
  std::vector<Buffer> free_;
  std::map<int64_t, Chunk> begun_;  // by number
  std::deque<Flight> flying_;       // the oldest first
  std::vector<std::byte> tail_;     // of the last page, where the file does not fill it
  size_t next_lane_ = 0;
  // A disk's bandwidth wants several writes at a time.
  static constexpr const char* kLane = "a checkpoint's file";
  std::array<SerialWorker, 4> lanes_{SerialWorker(kLane), SerialWorker(kLane), SerialWorker(kLane),
                                     SerialWorker(kLane)};
};

}  // namespace outrigger::checkpoint
