// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/bulk_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "core/memory/copy.h"

namespace outrigger::checkpoint {
namespace {

constexpr size_t kHuge = size_t{2} << 20;  // a huge page
constexpr std::chrono::seconds kLook{1};  // a wait for the disk, after which it is waited for again

int64_t whole_pages(int64_t bytes) { return bytes / BulkFile::kPage * BulkFile::kPage; }

}  // namespace

void BulkFile::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t{kHuge});
}

int64_t BulkFile::room_of(int64_t bytes, const Sizes& sizes) {
  if (bytes < sizes.direct_from) return 0;
  return std::min(kBuffers, bytes / sizes.chunk + 1) * sizes.chunk;
}

BulkFile::BulkFile(File file, int64_t bytes, const Sizes& sizes)
    : sizes_(sizes), bytes_(bytes), file_(std::move(file)), direct_(bytes >= sizes.direct_from) {
  if (!direct_) return;
  file_.allocate(bytes);
  direct_ = file_.set_direct(true);
}

// What was not finished is of no use.
BulkFile::~BulkFile() {
  for (SerialWorker& lane : lanes_) lane.stop();
}

// ---- Lanes --------------------------------------------------------------------------------------

void BulkFile::submit(int64_t offset, std::span<const std::byte> data, Buffer buffer) {
  const auto pages = static_cast<size_t>(whole_pages(static_cast<int64_t>(data.size())));
  if (pages < data.size()) tail_.assign(data.begin() + static_cast<ptrdiff_t>(pages), data.end());
  const size_t lane = std::exchange(next_lane_, (next_lane_ + 1) % lanes_.size());
  const auto part = data.first(pages);
  const uint64_t job = lanes_.at(lane).add([this, offset, part] { file_.write_at(offset, part); });
  flying_.push_back({lane, job, std::move(buffer)});
}

void BulkFile::land_one() {
  Flight& oldest = flying_.front();
  while (!lanes_.at(oldest.lane).wait_for(oldest.job, kLook)) {
  }
  free_.push_back(std::move(oldest.buffer));
  flying_.pop_front();
}

BulkFile::Buffer BulkFile::take_buffer(Lock& lock) {
  for (;;) {
    if (!free_.empty()) {
      Buffer buffer = std::move(free_.back());
      free_.pop_back();
      return buffer;
    }
    const size_t all = begun_.size() + flying_.size();
    if (all < static_cast<size_t>(kBuffers) && flying_.size() < 2 * lanes_.size()) {
      const auto room = static_cast<size_t>(sizes_.chunk);
      Buffer buffer(static_cast<std::byte*>(::operator new(room, std::align_val_t{kHuge})));
      // A wish: the disk takes a few large parts of memory at a time, or many small ones.
      if (room % kHuge == 0) madvise(buffer.get(), room, MADV_HUGEPAGE);
      return buffer;
    }
    if (!flying_.empty()) {
      land_one();
    } else if (filling_ > 0) {
      filled_.wait(lock);
    } else {
      fail(OTR_E_INTERNAL, "{}: {} parts of it are begun and not ended", path(), begun_.size());
    }
  }
}

// ---- Writing ------------------------------------------------------------------------------------

BulkFile::Chunk& BulkFile::chunk_at(int64_t number, Lock& lock) {
  const auto found = begun_.find(number);
  if (found != begun_.end()) return found->second;
  Buffer buffer = take_buffer(lock);
  const auto [begun, is_new] = begun_.try_emplace(number);
  if (is_new) {
    begun->second.buffer = std::move(buffer);
  } else {
    free_.push_back(std::move(buffer));  // another thread began it meanwhile
    filled_.notify_all();
  }
  return begun->second;
}

void BulkFile::fill(Chunk& chunk, int64_t into, std::span<const std::byte> data, Lock& lock) {
  ++filling_;
  lock.unlock();
  memory::copy_past_caches(chunk.buffer.get() + into, data);
  lock.lock();
  --filling_;
  chunk.filled += static_cast<int64_t>(data.size());
  filled_.notify_all();
}

void BulkFile::write(int64_t offset, std::span<const std::byte> data) {
  if (!direct_) {
    file_.write_at(offset, data);
    return;
  }
  Lock lock(mutex_);
  while (!data.empty()) {
    const int64_t number = offset / sizes_.chunk, begin = number * sizes_.chunk;
    const int64_t room = std::min(sizes_.chunk, bytes_ - begin);
    const int64_t into = offset - begin;
    const auto count = std::min(room - into, static_cast<int64_t>(data.size()));
    Chunk& chunk = chunk_at(number, lock);
    fill(chunk, into, data.first(static_cast<size_t>(count)), lock);
    if (chunk.filled == room) {
      Buffer buffer = std::move(chunk.buffer);
      begun_.erase(number);
      const std::span whole(buffer.get(), static_cast<size_t>(room));
      submit(begin, whole, std::move(buffer));
    }
    data = data.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

void BulkFile::finish() {
  const std::lock_guard lock(mutex_);
  while (!flying_.empty()) land_one();
  if (direct_ && !tail_.empty()) {
    file_.set_direct(false);
    file_.write_at(bytes_ - static_cast<int64_t>(tail_.size()), tail_);
  }
  file_.sync();
  file_.close();
}

}  // namespace outrigger::checkpoint
