// SPDX-License-Identifier: Apache-2.0
// What the engine needs of a group of ranks. One object is used by one thread at a time; every
// operation is collective and ordered; each carries a label that errors name.
//
// Failure: any operation throws outrigger::Error (OTR_E_PEER_DEAD, _TIMEOUT, _MISMATCH, _ABORTED)
// that names rank, operation and sequence number; after the first one all later operations of the
// whole job (duplicates included) throw the same culprit.
//
// A host that interrupts the thread's wait (core/context/interrupt.h) gets OTR_E_INTERRUPTED. While
// ranks had still to come to the operation, that ends nothing: the same operation, called again,
// waits on, and no other may be called before. Later it ends the job: check() throws then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"

namespace outrigger::comm {

inline constexpr int32_t kMaxWorld = 512;  // ranks of one host's communicators

// Memory that the group's ranks may read of each other. per_rank: each rank has a block of its own;
// common: one block for all. Zero-filled, page-aligned, first touched by the rank that owns it
// (common: in equal page-aligned parts by all ranks), MADV_DONTFORK.
enum class WindowKind : uint8_t { per_rank, common };

class Window {
 public:
  virtual ~Window() = default;
  // The rank's block as mapped here; null for another rank's where the ranks share no memory.
  [[nodiscard]] virtual std::byte* block(int32_t rank) const = 0;
  [[nodiscard]] virtual size_t bytes() const = 0;
};

// Merges bytes [offset, offset + from.size()) of another rank's value into this one. Associative
// and exact, so that it does not matter in which groups ranks are merged, only that they are in
// order.
using Merge =
    std::function<void(size_t offset, std::span<std::byte> into, std::span<const std::byte> from)>;
inline constexpr size_t kMergeUnit = 4096;  // a value is merged in parts that are cut at multiples

// The sum over ranks of this rank's slice. Every rank has filled bytes
// [offset, offset + size()*slice_bytes) of its block of a per_rank window.
struct Reduce {
  const Window& window;
  size_t offset, slice_bytes;
  device::Device& device;  // whose memory the window is, and the accumulator
  device::SliceFold fold;  // without its sources
  // Of what the fold has stored and found, which comes on top; null: not asked for.
  kernels::NormSum* norm = nullptr;
  device::Nonfinite* origin = nullptr;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int32_t rank() const = 0;
  [[nodiscard]] virtual int32_t size() const = 0;
  [[nodiscard]] virtual std::string_view provider()
      const = 0;  // "self", "threads", "shm", "custom"
  // Whether ranks see each other's windows. Where they do not, there are no common windows.
  [[nodiscard]] virtual bool shares_memory() const { return true; }

  // A group of the same ranks with an order of its own, for another thread. Collective.
  [[nodiscard]] virtual std::unique_ptr<Communicator> duplicate(std::string_view name) = 0;

  // A new group of some of these ranks, in this order (each rank gives the group it is to be in, or
  // none). Collective. Throws OTR_E_UNSUPPORTED where the provider cannot.
  [[nodiscard]] virtual std::unique_ptr<Communicator> subgroup(
      const std::vector<int32_t>& members) = 0;

  virtual void barrier(std::string_view label) = 0;
  virtual void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) = 0;
  // all.size() == size() * mine.size(); every rank gives the same mine.size().
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                          std::string_view label) = 0;

  // The value becomes the merge of all ranks' values, which are of the same size; alike on every
  // rank. Takes memory for a few values, however many ranks there are.
  virtual void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) = 0;

  // Collective. Throws OTR_E_OUT_OF_MEMORY on every rank if one of them cannot have it.
  [[nodiscard]] virtual std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                                              std::string_view label) = 0;

  // Returns when this rank's slice is summed. Returns a ticket. A fold that throws aborts the job.
  uint64_t reduce(const Reduce& reduce, std::string_view label);
  // Its two halves. Every rank's slice number rank() of a per_rank window, in rank order; readable
  // until end_exchange, which this rank calls next.
  [[nodiscard]] virtual std::span<const void* const> exchange(const Window& window, size_t offset,
                                                              size_t slice_bytes,
                                                              std::string_view label) = 0;
  // This rank has read them. Returns a ticket.
  virtual uint64_t end_exchange() = 0;
  // True when every rank has read the slices of this ticket: the bytes may be overwritten. Any
  // thread. Not collective, does not wait.
  [[nodiscard]] virtual bool is_drained(uint64_t ticket) const = 0;
  // Waits until is_drained; throws like an operation.
  virtual void wait_drained(uint64_t ticket, std::string_view label) = 0;

  // Every rank has filled slice number rank() of [offset, offset + size()*slice_bytes) of its own
  // block; afterwards each rank's block holds all slices.
  virtual void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                                 std::string_view label) = 0;

  // Makes pending and later operations of all ranks throw OTR_E_ABORTED naming this rank. Any
  // thread.
  virtual void abort(std::string_view reason) noexcept = 0;
  // Makes this object's pending and later operations on this rank throw OTR_E_ABORTED. Others are
  // not told: they see this rank leave when the object is destroyed. Any thread.
  virtual void cancel() noexcept = 0;
  // Tells the others that this rank comes to no operation of this object any more: who waits for it
  // gets OTR_E_PEER_DEAD at once, naming `culprit`: this rank, or the one because of which it goes.
  // The first call counts. The job goes on. Any thread.
  virtual void give_up([[maybe_unused]] int32_t culprit) noexcept {}
  // Throws the job's failure if there is one; never waits. Any thread.
  virtual void check() const = 0;
  // How many operations all ranks have come to. Changes with this object's operations only.
  [[nodiscard]] virtual uint64_t completed() const { return 0; }
  // What an operation in progress waits for, for texts; "" if that is not known. Any thread.
  [[nodiscard]] virtual std::string waiting() const { return {}; }
  // Destroyed, this rank has left: peers that still wait for it here get OTR_E_PEER_DEAD, and so
  // does all that they call on this object later. The job's other objects go on.
};

struct Settings {
  double timeout = 300;  // seconds
  int32_t spin = -1;     // microseconds before sleeping; −1: chosen from cores and ranks
};

[[nodiscard]] std::unique_ptr<Communicator> make_self();
// `world` handles of one in-process group.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_threads(int32_t world,
                                                                      const Settings& settings);
// job: unique among this user's running jobs on this host.
[[nodiscard]] std::unique_ptr<Communicator> make_shm(int32_t rank, int32_t world,
                                                     std::string_view job,
                                                     const Settings& settings);

// The group of the ranks with the same color, ordered by key and rank; null for color −1.
// Collective.
[[nodiscard]] std::unique_ptr<Communicator> split(Communicator& comm, int32_t color, int32_t key);

// What a launcher put into the environment. Throws OTR_E_CONFIG listing what it saw.
struct Launch {
  int32_t rank = 0, world = 1, local_rank = 0, local_world = 1;
  std::string job;       // from MASTER_ADDR, MASTER_PORT, run id, restart count
  std::string launcher;  // "none", "torchrun" (RANK…), "Open MPI", "Slurm"
};
[[nodiscard]] Launch read_launch_environment();

}  // namespace outrigger::comm
