// SPDX-License-Identifier: Apache-2.0
// What ranks of one host share: fixed layouts, lock-free atomics, no pointers. Zero bytes are a
// valid start for all but magic, version, world and identity, which rank 0 writes before anyone
// else maps the block.
//
//   JobBlock      once a job:           whose failure ended it, and one record a rank
//   ChannelBlock  once a communicator:  the bell, what ended it, a slot and a record a rank,
//   staging
//
// A peer of the same user can write here, so what is read is copied, range-checked and only then
// used.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/comm/operation.h"

namespace outrigger::comm {

inline constexpr uint64_t kMagic = 0x524547474952544f;  // "OTRIGGER", little-endian
inline constexpr uint32_t kLayoutVersion = 5;
inline constexpr size_t kLine = 128;  // two cache lines: the next-line prefetcher couples them

// Why the job or a channel ended, as told to every rank. Written by one rank before it is pointed
// at.
struct FailureRecord {
  int32_t status;
  int32_t culprit;
  uint64_t sequence;
  std::array<char, 624> text;  // ends with a zero byte
};

struct alignas(kLine) MemberRecord {
  std::atomic<int64_t> process;  // as the rank itself sees its number
  FailureRecord failure;
};

struct alignas(kLine) JobBlock {
  uint64_t magic;
  uint32_t version;
  int32_t world;
  std::atomic<uint32_t> failed_by;  // 0: nobody; r + 1: rank r's record is the job's failure
  std::atomic<uint64_t> channels;   // how many duplicates were made
  uint64_t identity;                // of the job (identity.h)

  [[nodiscard]] MemberRecord& member(int32_t rank) {
    return reinterpret_cast<MemberRecord*>(this + 1)[rank];
  }
  [[nodiscard]] static size_t bytes(int32_t world) {
    return sizeof(JobBlock) + static_cast<size_t>(world) * sizeof(MemberRecord);
  }
};

// What sleepers sleep on; an arrival rings it only where somebody does.
struct Bell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t>
      sleepers;  // one too many after a sleeper was killed: costs spare calls only
};

// Why a rank comes to no operation of a channel any more, and because of whom.
struct Gone {
  enum Way : uint32_t {
    no,
    left,     // its handle was destroyed
    gave_up,  // another rank had left, or what it belongs to failed there
  };
  Way way = no;
  int32_t culprit = 0;

  [[nodiscard]] uint64_t packed() const {
    return uint64_t{way} << 32 | static_cast<uint32_t>(culprit);
  }
  [[nodiscard]] static Gone of(uint64_t packed) {
    return {static_cast<Way>(packed >> 32), static_cast<int32_t>(packed)};
  }
};

// One rank's progress on one channel; only this rank writes here.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> arrived;  // the last step this rank came to (an operation has one or more)
  std::atomic<uint64_t> drained;  // the last reduce whose slices this rank has read
  std::atomic<uint64_t> watched;  // how many of Group::watch have come to their end on this rank
  std::atomic<uint64_t> gone;     // nothing more will come: a packed Gone, written once
  std::atomic<uint64_t> elsewhere;  // 1: this rank is in an operation of a part of this group
  // The digests of the operations in ring, in the cache line that the other ranks wait for.
  std::array<std::atomic<uint64_t>, 2> calls;
  alignas(kLine)
      std::array<PostedOperation, 2> ring;  // by operation number; see HostCommunicator::begin
};

struct alignas(kLine) ChannelBlock {
  uint64_t id;  // 0: the job's first channel
  Bell bell;
  // As the job's, of failures that end this channel alone. Read at each operation, so not beside
  // what each arrival writes.
  alignas(kLine) std::atomic<uint32_t> failed_by;

  [[nodiscard]] Slot& slot(int32_t rank) { return reinterpret_cast<Slot*>(this + 1)[rank]; }
  // Beside the slots, which waiting ranks read all the time.
  [[nodiscard]] FailureRecord& failure(int32_t world, int32_t rank) {
    return reinterpret_cast<FailureRecord*>(&slot(world))[rank];
  }
  // Two halves, used in turn by successive steps; in each, every rank has a part of its own.
  [[nodiscard]] std::byte* staging(int32_t world, int32_t rank, uint64_t step) {
    const size_t part = (step & 1) * static_cast<size_t>(world) + static_cast<size_t>(rank);
    return reinterpret_cast<std::byte*>(&failure(world, world)) + part * staging_bytes(world);
  }
  // What a rank can hand over in one step. Small enough to stay in cache, large enough to stream.
  [[nodiscard]] static size_t staging_bytes(int32_t world) {
    constexpr size_t kHalf = 512 << 10, kLeast = 8 << 10;
    const size_t even = kHalf / static_cast<size_t>(world) / kLine * kLine;
    return even < kLeast ? kLeast : even;
  }
  [[nodiscard]] static size_t bytes(int32_t world) {
    const auto w = static_cast<size_t>(world);
    return sizeof(ChannelBlock) + w * (sizeof(Slot) + sizeof(FailureRecord)) +
           (w == 1 ? 0 : 2 * w * staging_bytes(world));
  }
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(FailureRecord) == 5 * kLine && sizeof(MemberRecord) == 768);
static_assert(sizeof(JobBlock) == 128 && offsetof(JobBlock, failed_by) == 16);
static_assert(sizeof(Slot) == 384 && offsetof(Slot, ring) == 128);
static_assert(sizeof(ChannelBlock) == 2 * kLine && offsetof(ChannelBlock, bell) == 8 &&
              offsetof(ChannelBlock, failed_by) == kLine);

}  // namespace outrigger::comm
