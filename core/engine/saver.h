// SPDX-License-Identifier: Apache-2.0
// A save beside the training: the states of a moment are written on a thread, whose ranks meet in a
// group of their own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/serial_worker.h"
#include "core/engine/health.h"
#include "core/engine/save_job.h"
#include "core/engine/snapshot.h"

namespace outrigger::engine {

class Saver {
 public:
  // room: of the copies, reserved; may be 0.
  // states: tells this when they are about to change.
  Saver(Declared& declared, StateStore& states, std::unique_ptr<comm::Communicator> group,
        int64_t room);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // What a save may copy to, while none is under way.
  [[nodiscard]] memory::Block& room() { return room_; }
  // began: when the call came that made them.
  void begin(SaveJob job, std::shared_ptr<Snapshot> snapshot,
             std::chrono::steady_clock::time_point began);

  [[nodiscard]] bool is_under_way() const;
  // Until none is; at most so many seconds, negative: without end. False: one still is. Interrupts:
  // OTR_E_INTERRUPTED, and the save goes on.
  bool wait(double seconds, const char* call);
  // Throws what the last one failed with, once.
  void require_success();
  // The same on all ranks alike: one that was told is told again where another was not. Collective.
  void require_success_everywhere(Health& health, comm::Group& control, const char* call,
                                  Again again);

  enum class State : uint8_t { none, under_way, done, failed };
  struct Status {
    State state = State::none;
    std::string tag, failure;
    int64_t bytes = 0, written = 0;   // of this rank
    double held_up = 0, seconds = 0;  // the training, by copies; from the call to the end
  };
  [[nodiscard]] Status status() const;

  // Ends it on all ranks, where that does not come with the control's. Any thread.
  void abort(std::string_view reason) noexcept { group_->abort(reason); }

 private:
  void save(SaveJob& job, Snapshot& snapshot);
  void secure() noexcept;
  [[nodiscard]] Error caused(const Error& failure) const;
  void end(State state, const std::optional<Error>& failure);
  [[nodiscard]] std::optional<Error> untold() const;

  Declared& declared_;
  StateStore& states_;
  const std::unique_ptr<comm::Communicator> group_;
  memory::Block room_;
  std::atomic<int64_t> written_{0};
  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;            // guards the next five
  std::shared_ptr<Snapshot> snapshot_;  // while it is written
  Status status_;
  std::optional<Error> failure_;  // that nobody was told of
  std::chrono::steady_clock::time_point began_;
  uint64_t job_ = 0;  // of the worker
  SerialWorker worker_{"an asynchronous save"};
};

}  // namespace outrigger::engine
