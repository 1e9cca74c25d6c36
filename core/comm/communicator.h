// SPDX-License-Identifier: Apache-2.0
// A group of ranks that exchange data, too: memory that the others may read, sums over ranks of
// what lies in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/comm/group.h"
#include "core/comm/moment.h"
#include "core/comm/settings.h"
#include "core/comm/shape.h"
#include "core/comm/window.h"
#include "core/device/device.h"

namespace outrigger::comm {

inline constexpr int32_t kMaxWorld = 512;  // ranks of one host's communicators

// The sum over ranks of this rank's slice. Every rank has filled bytes
// [offset, offset + slices()*slice_bytes) of its block of a per_rank window.
struct Reduce {
  const Window& window;
  size_t offset, slice_bytes;
  device::Device& device;  // whose memory the window is, and the accumulator
  device::SliceFold fold;  // without its sources
  // Of what the fold has stored and found, which comes on top; null: not asked for. A slice that
  // several ranks have counts in the norm of the first of them.
  kernels::NormSum* norm = nullptr;
  device::Nonfinite* origin = nullptr;
  // Of a group of one, on a device that decides: there, in place of the two. Nothing waits, and the
  // slice is summed in the order of the device's own stream.
  std::byte* sum = nullptr;
  // What ranks send each other goes as 8-bit blocks (Format::block8), each rank's own as well: its
  // slices, or, where groups send sums, these. In host memory.
  bool in_blocks = false;
};

// Of a slice of so many elements.
[[nodiscard]] constexpr size_t bytes_in_blocks(int64_t count) {
  return static_cast<size_t>(kernels::bytes_of(count, device::Format::block8));
}

class Communicator : public Group {
 public:
  // The same on all ranks of this object, and of no other one, duplicates included.
  [[nodiscard]] virtual uint64_t identity() const = 0;
  // Its operations, and those of what is made of it, belong to this moment of a training.
  virtual void follow([[maybe_unused]] std::shared_ptr<const Moment> moment) {}

  // Whether ranks see each other's windows, those that together have all slices. Where they do not,
  // there are no common windows.
  [[nodiscard]] virtual bool shares_memory() const { return true; }
  // All ranks are known to be on one host.
  [[nodiscard]] virtual bool is_one_host() const { return shares_memory(); }
  // Groups of as many ranks each, between which go sums instead of every rank's slices; 1: there is
  // one level, and exchange() works.
  [[nodiscard]] virtual int32_t groups() const { return 1; }
  [[nodiscard]] virtual Levels levels() const { return Levels::one; }
  [[nodiscard]] Shape shape() const {
    return {levels(), groups(), slices(), slice(), shares_memory(), slice_counts()};
  }

  // What moves published parameters where they are in fewer slices than states (Levels::divided):
  // between the ranks that together have all of them, and between those that have the same slice,
  // each of which makes a part of it. Else two nulls. Collective.
  struct Publishing {
    std::unique_ptr<Communicator> group;
    std::unique_ptr<Group> replicas;
  };
  [[nodiscard]] virtual Publishing publishing(std::string_view name);

  // A group of the same ranks with an order of its own, for another thread. Collective.
  [[nodiscard]] virtual std::unique_ptr<Communicator> duplicate(std::string_view name) = 0;

  // A new group of some of these ranks, in this order (each rank gives the group it is to be in, or
  // none). Collective. Throws OTR_E_UNSUPPORTED where the provider cannot.
  [[nodiscard]] virtual std::unique_ptr<Communicator> subgroup(
      const std::vector<int32_t>& members) = 0;

  // Collective. Throws OTR_E_OUT_OF_MEMORY on every rank if one of them cannot have it.
  [[nodiscard]] virtual std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                                              std::string_view label) = 0;

  // Returns when this rank's slice is summed, or with Reduce::sum, is on its way. Returns a ticket:
  // they grow, and 0 is one that is drained already. A fold that throws aborts the job.
  virtual uint64_t reduce(const Reduce& reduce, std::string_view label);
  // Its two halves. Every rank's slice number slice() of a per_rank window, in rank order; readable
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

  // Every rank has filled slice number slice() of [offset, offset + slices()*slice_bytes) of its
  // own block; afterwards each rank's block holds all slices.
  virtual void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                                 std::string_view label) = 0;
  // The same of several runs, in this order. A provider may overlap them.
  struct SliceRun {
    size_t offset, slice_bytes;
  };
  virtual void all_gather_runs(Window& window, std::span<const SliceRun> runs,
                               std::string_view label) {
    for (const SliceRun& run : runs) all_gather_window(window, run.offset, run.slice_bytes, label);
  }

 protected:
  struct Folded {
    kernels::NormSum norm;
    device::Nonfinite origin;
  };
  // A fold that throws aborts the job.
  Folded fold(device::Device& device, const device::SliceFold& slice, std::string_view label);
  void abort_because(const std::exception& error, std::string_view reason) noexcept;
  // The rest of a reduce, whose sums of several ranks are there, in float32 or in blocks: to the
  // accumulator, the norm and the origin. They name no rank.
  void fold_sums(const Reduce& reduce, std::span<const void* const> sums, device::Format from,
                 std::string_view label);
  // `number` slices of so many elements, one behind another, as 8-bit blocks.
  static void to_blocks(device::Device& device, std::byte* blocks, const std::byte* values,
                        device::Format from, int64_t count, size_t number);

 private:
  uint64_t reduce_in_blocks(const Reduce& reduce, std::string_view label);
  void fold_slices(const Reduce& reduce, const device::SliceFold& slice, std::string_view label);
  ReusedWindow blocks_;
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
  std::string launcher;  // "none", "torchrun" (RANK…), "Open MPI", "PMI", "Slurm"
};
[[nodiscard]] Launch read_launch_environment();

}  // namespace outrigger::comm
