// SPDX-License-Identifier: Apache-2.0
// One sequence of operations, which all its ranks begin in the same order: each is given as data,
// returns at once with a ticket, and runs when the ones before it have, on a thread of the sequence
// or in the threads that wait for it. Two sequences with threads never wait for each other.
//
// Failure: what an operation throws ends the sequence here. Waits for it and for later operations
// throw it, and so does check(); the channel's failures are a Group's, alike on all ranks.
//
// Code of the caller that has its place in the sequence is run by it, one piece at a time:
// `prepare` after the `then` of the operation before, though perhaps while that one still moves
// data; `then` when its operation has. What it throws counts as the operation's failure. It waits
// for nothing that is begun later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"
#include "core/observe/timeline.h"

namespace outrigger::comm {

// The sum over ranks of what lies in a window. Its norm begins at nothing.
struct Reduction {
  Reduce reduce;
  std::string label;
  // Fills this rank's block, once every rank has read what an earlier operation gave from the same
  // place. None: it is filled, and free by the caller's own order.
  std::function<void()> prepare = {};
  std::string reuse = {};  // names that wait; empty: as the operation
};

// Communicator::all_gather_window.
struct WindowGather {
  Window& window;
  size_t offset, slice_bytes;
  std::string label;
  std::function<void()> then = {};  // all slices are there
};

// Group::all_gather_parts.
struct PartsGather {
  std::vector<Part> parts;
  std::string label;
  std::function<void()> prepare = {};  // this rank's bytes are put there
  std::function<void()> then = {};     // all bytes are there
};

// Group::combine. What follows from the merged value belongs to the operation: the reductions that
// `then` makes of it, alike on all ranks, run before the sequence goes on.
struct Combination {
  std::span<std::byte> value;
  Merge merge;
  std::string label;
  std::function<void()> prepare = {};                 // the value is put there
  std::function<std::vector<Reduction>()> then = {};  // it is merged
};

// Operations are begun by one thread at a time; all else may be called by any thread. What an
// operation refers to stays until it is done.
class Exchange {
 public:
  using Ticket = uint64_t;  // of the operations in their order, from 1

  virtual ~Exchange() = default;  // as stop
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // As the communicator's. Collective: while nothing is under way, or in a Combination's `then`.
  [[nodiscard]] virtual std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                                              std::string_view label) = 0;
  // Takes what the first operation would take else. Throws OTR_E_OUT_OF_MEMORY where the system has
  // no thread to give.
  virtual void start() = 0;

  // They throw as start does.
  virtual Ticket begin(Reduction operation) = 0;
  virtual Ticket begin(WindowGather operation) = 0;
  virtual Ticket begin(PartsGather operation) = 0;
  virtual Ticket begin(Combination operation) = 0;

  // The operation has run on this rank, and so have all before it.
  [[nodiscard]] virtual bool is_done(Ticket ticket) const = 0;
  // … and every rank has read what this one gave: the memory is free. Never waits.
  [[nodiscard]] virtual bool is_drained(Ticket ticket) const = 0;
  // Until is_done. Throws the sequence's failure; OTR_E_INTERRUPTED: it can be called again, and
  // nothing is made twice; OTR_E_ABORTED after stop.
  virtual void wait(Ticket ticket) = 0;
  // … for all that has been begun.
  virtual void wait_all() = 0;

  // Throws the sequence's failure; never waits.
  virtual void check() = 0;
  // As a Group's.
  virtual void give_up(int32_t culprit) noexcept = 0;
  virtual void cancel() noexcept = 0;
  // Cancels, drops what has not begun to run, and returns when nothing runs any more: without other
  // ranks, as far as the channel's cancel reaches.
  virtual void stop() noexcept = 0;

 protected:
  Exchange() = default;
};

// Where the spans of a sequence's operations go; null: nowhere.
struct Observed {
  observe::Timeline* timeline = nullptr;
  observe::Phase phase = observe::Phase::sums;
};

// Over a communicator that blocks, whose only user it is. what: names the sequence in texts, as in
// "the wait for {what} was interrupted".

// Its operations run on one thread, beside the caller; an interrupt ends none of them.
[[nodiscard]] std::unique_ptr<Exchange> make_blocking_exchange(
    std::unique_ptr<Communicator> channel, const char* what, const Observed& observed = {});

// Its operations run in wait and wait_all, and it has no thread: for a caller that waits at once.
// An interrupt is the channel's (group.h): the next wait makes the interrupted call again, but one
// that comes while ranks move data ends the job. Code of the caller that is interrupted in
// create_window is run again.
[[nodiscard]] std::unique_ptr<Exchange> make_inline_exchange(std::unique_ptr<Communicator> channel,
                                                             const char* what,
                                                             const Observed& observed = {});

}  // namespace outrigger::comm
