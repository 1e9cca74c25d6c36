// SPDX-License-Identifier: Apache-2.0
// A private block of memory, the host's or a device's: zero-filled, 64-byte aligned, charged to a
// ledger while it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/device/device.h"
#include "core/device/neighbours.h"
#include "core/memory/ledger.h"

namespace outrigger::memory {

// Host memory that many small blocks are cut from, one behind the other: a walk over them is one
// over memory nearly without gaps. It goes with the last of them.
class Pool {
 public:
  // bytes: the sum of room_of() of its blocks. Throws as Block.
  Pool(Purpose purpose, int64_t bytes, std::span<const device::Neighbour> others);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  [[nodiscard]] static int64_t room_of(int64_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
  }
  [[nodiscard]] device::Neighbour whole() const { return {memory_.get(), bytes_}; }

 private:
  friend class Block;
  static constexpr int64_t kLine = 64;
  std::shared_ptr<std::byte> memory_;
  size_t bytes_ = 0, used_ = 0;
};

class Shown;

class Block {
 public:
  Block() = default;
  // device null or the host: host memory. A device outlives its blocks; freeing one waits for the
  // work that was given to it. Throws OTR_E_OUT_OF_MEMORY naming the purpose and the bytes.
  // stream: see Device::allocate and Device::release; without meaning on the host. shown: where a
  // caller will see it, if that is the host's; outlives it.
  Block(Ledger& ledger, Purpose purpose, int64_t bytes, device::Device* device = nullptr,
        device::Stream stream = device::kNoStream, Shown* shown = nullptr);
  // Of a pool, in which it has its room.
  Block(Ledger& ledger, Purpose purpose, int64_t bytes, Pool& pool);
  Block(Block&& other) noexcept { *this = static_cast<Block&&>(other); }
  Block& operator=(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { release(); }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  explicit operator bool() const { return data_ != nullptr; }
  // Its last use is in this stream: freeing it waits for nothing.
  void free_after(device::Stream stream) { stream_ = stream; }
  // A device's memory goes, when the work that was given before is done, and comes back
  // zero-filled, perhaps elsewhere; the host's stays. restore throws as the constructor.
  void drop() noexcept;
  void restore();

 private:
  void release() noexcept;
  void allocate_there();
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Purpose purpose_ = Purpose::published;
  std::shared_ptr<std::byte> memory_;  // without a device
  Ledger* ledger_ = nullptr;
  device::Device* device_ = nullptr;  // null: the host's
  device::Stream stream_ = device::kNoStream;
  Charge charge_;
  PageNote note_;
};

}  // namespace outrigger::memory
