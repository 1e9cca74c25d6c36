// SPDX-License-Identifier: Apache-2.0
// Ranks that know each other: small values between them, and who is alive. One object is used by
// one thread at a time; every operation is collective and ordered; each carries a label that errors
// name.
//
// Failure: any operation throws outrigger::Error (OTR_E_PEER_DEAD, _TIMEOUT, _MISMATCH, _ABORTED)
// that names rank, operation and sequence number; after the first one all later operations of the
// whole job (duplicates included) throw the same. A rank that leaves one object ends that object
// only, for all ranks with one text.
//
// A host that interrupts the thread's wait (core/context/interrupt.h) gets OTR_E_INTERRUPTED. While
// ranks had still to come to the operation, that ends nothing: the same operation, called again,
// waits on, and no other may be called before. Later it ends the job: check() throws then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace outrigger::comm {

// Merges bytes [offset, offset + from.size()) of another rank's value into this one. Associative
// and exact, so that it does not matter in which groups ranks are merged, only that they are in
// order.
using Merge =
    std::function<void(size_t offset, std::span<std::byte> into, std::span<const std::byte> from)>;
inline constexpr size_t kMergeUnit = 4096;  // a value is merged in parts that are cut at multiples

// Bytes that the rank of a slice has and all shall have.
struct Part {
  int32_t rank;  // Group::slice
  std::span<std::byte> bytes;
};

// How a group that is a part of a larger one names that one's rank as a culprit, and back.
constexpr int32_t rank_outside(int32_t rank) { return ~rank - 1; }  // −2 and below

class Group {
 public:
  virtual ~Group() = default;

  [[nodiscard]] virtual int32_t rank() const = 0;
  [[nodiscard]] virtual int32_t size() const = 0;
  // Of how many slices is what ranks share out, and which is this rank's: that of its number,
  // unless groups of ranks have all slices each (mesh.h).
  [[nodiscard]] virtual int32_t slices() const { return size(); }
  [[nodiscard]] virtual int32_t slice() const { return rank(); }
  // Whose it is: the first such rank's number.
  [[nodiscard]] virtual int32_t rank_of_slice(int32_t slice) const { return slice; }
  // Of the ranks that have this slice, it is the first.
  [[nodiscard]] bool slice_counts() const { return rank_of_slice(slice()) == rank(); }
  // "self", "threads", "shm", "custom", "hierarchical", "mesh"
  [[nodiscard]] virtual std::string_view provider() const = 0;

  virtual void barrier(std::string_view label) = 0;
  virtual void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) = 0;
  // all.size() == size() * mine.size(); every rank gives the same mine.size().
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                          std::string_view label) = 0;

  // Afterwards each rank has every part as its rank had it. Any number of parts, of any sizes and
  // ranks, at different places on each rank; else alike on all of them.
  virtual void all_gather_parts(std::span<const Part> parts, std::string_view label) = 0;

  // The value becomes the merge of all ranks' values, which are of the same size; alike on every
  // rank. Takes memory for a few values, however many ranks there are.
  virtual void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) = 0;

  // Waits for what the ranks do outside of this group, after an operation of it that all came to:
  // until ready(), which is asked often. Throws what it throws, and as an operation while ranks
  // move data: for a rank that is dead or has left, a deadline, an interrupt. Ranks watch in the
  // same order and do not wait for each other: one may come to its end, and go, before another.
  virtual void watch(const std::function<bool()>& ready, std::string_view label);

  // Makes pending and later operations of all ranks throw OTR_E_ABORTED naming this rank. Any
  // thread.
  virtual void abort(std::string_view reason) noexcept = 0;
  // The same because of an error on this rank, whose own operations throw that error, where the
  // provider can keep it. So no thread hears of an abort before it hears why.
  virtual void abort_for([[maybe_unused]] const Error& error, std::string_view reason) noexcept {
    abort(reason);
  }
  // Makes pending and later operations of this object throw this, or what failed before, on all
  // ranks, as far as the provider reaches them. The job goes on. Any thread.
  virtual void post(const Error& error) noexcept = 0;
  // Makes this object's pending and later operations on this rank throw OTR_E_ABORTED. Others are
  // not told: they see this rank leave when the object is destroyed. Any thread.
  virtual void cancel() noexcept = 0;
  // Tells the others that this rank comes to no operation of this object any more: who waits for it
  // gets OTR_E_PEER_DEAD at once, naming `culprit`: this rank, or the one because of which it goes,
  // perhaps a rank_outside. The first call counts. The job goes on. Any thread.
  virtual void give_up([[maybe_unused]] int32_t culprit) noexcept {}
  // This rank is in an operation of a group that is a part of this one: it may come late to this
  // one's because of the others. Is a rank?
  virtual void set_elsewhere([[maybe_unused]] bool elsewhere) noexcept {}
  [[nodiscard]] virtual bool is_elsewhere([[maybe_unused]] int32_t rank) const { return false; }
  // Throws the job's failure if there is one; never waits. Any thread.
  virtual void check() const = 0;
  // How many operations all ranks have come to. Changes with this object's operations only.
  [[nodiscard]] virtual uint64_t completed() const = 0;
  // What an operation in progress waits for, for texts; "" if that is not known. Any thread.
  [[nodiscard]] virtual std::string waiting() const { return {}; }
  // Destroyed, this rank has left: peers that still wait for it here get OTR_E_PEER_DEAD, and so
  // does all that they call on this object later. The job's other objects go on.
};

}  // namespace outrigger::comm
