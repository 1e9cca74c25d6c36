// SPDX-License-Identifier: Apache-2.0
// The boundary order: acc = round(float32(acc) + g) locally for every contribution, one reduction a
// window.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "core/engine/reduce.h"

namespace outrigger::engine {

class BoundaryReducer final : public Reducer {
 public:
  BoundaryReducer(const ReduceContext& context, std::unique_ptr<comm::Communicator> comm);

  std::unique_ptr<GradientSink> begin_pass() override;
  Summed finish() override;
  void give_up(int32_t culprit) noexcept override { comm_->give_up(culprit); }
  void stop() noexcept override { comm_->cancel(); }
  [[nodiscard]] std::byte* gradient(const layout::Piece& piece) const override;

 private:
  // One parameter in one window.
  struct Entry {
    std::mutex mutex;                       // of the slots of this parameter, too
    bool filled = false;                    // the accumulator holds a sum
    bool lent = false;                      // a slot in the accumulator is out
    memory::Block waiting;                  // what came meanwhile
    InFlight in_flight, waiting_in_flight;  // on the accumulator, on `waiting`
  };
  // One parameter's slot in one pass.
  struct Slot {
    std::byte* data = nullptr;  // handed out, not handed back
    memory::Block scratch;      // its memory, where the accumulator was taken or is not in front
  };
  class Sink;
  void on_clear() override;
  void* slot(Slot& slot, int64_t root);
  void add(Slot& slot, int64_t root, const Gradient& gradient);
  void end(std::vector<Slot>& slots, bool discard);
  [[nodiscard]] std::byte* at(int64_t flat) const;
  // The slot in the accumulator came back, filled, or will not any more: adds what waited for it.
  void take_back(Entry& entry, int64_t root, bool filled);
  void zero_missing();

  std::unique_ptr<comm::Communicator> comm_;
  kernels::Format format_;
  std::shared_ptr<comm::Window> window_;  // every rank's accumulator of the whole flat space
  memory::Charge charge_;
  device::Pinned pinned_;
  std::deque<Entry> entries_;
  std::atomic<bool> discard_{false};

  std::optional<Summed> summing_;  // since finish was called first in this window
  size_t buckets_summed_ = 0, buckets_gathered_ = 0;
};

}  // namespace outrigger::engine
