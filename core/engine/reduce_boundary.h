// SPDX-License-Identifier: Apache-2.0
// The boundary order: acc = round(float32(acc) + g) locally for every contribution, one reduction a
// window, which runs in the thread that calls finish.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include "core/engine/reduce.h"

namespace outrigger::engine {

class BoundaryReducer final : public Reducer {
 public:
  BoundaryReducer(const ReduceContext& context, std::unique_ptr<comm::Exchange> exchange);
  ~BoundaryReducer() override { stop(); }

  std::unique_ptr<GradientSink> begin_pass() override;
  [[nodiscard]] std::byte* gradient(const layout::Piece& piece) const override;
  void list_movable(std::vector<Movable>& all) override {
    list_window(all, memory::Purpose::accumulators, whole_, entered_);
  }

 private:
  // One parameter in one window.
  struct Entry {
    std::mutex mutex;                    // of the slots of this parameter, too
    bool filled = false;                 // the accumulator holds a sum
    bool lent = false;                   // a slot in the accumulator is out
    memory::Block waiting;               // what came meanwhile
    device::Event ready, waiting_ready;  // the accumulator is, `waiting` is
  };
  // One parameter's slot in one pass.
  struct Slot {
    std::byte* data = nullptr;  // handed out, not handed back
    memory::Block scratch;      // its memory, where the accumulator was taken or is not in front
  };
  class Sink;
  void begin_sums() override;
  void on_clear() override;
  void* slot(Slot& slot, int64_t root, device::Stream stream);
  void add(Slot& slot, int64_t root, const Gradient& gradient);
  void end(std::vector<Slot>& slots, bool discard);
  [[nodiscard]] std::byte* at(int64_t flat) const;
  // The slot in the accumulator came back, filled, or will not any more: adds what waited for it.
  void take_back(Entry& entry, int64_t root, bool filled);
  void zero_missing();
  // As deposit, to the accumulator, which is the host's for a device's gradients.
  void bring_down(std::byte* to, bool first, const Gradient& gradient, device::Event& ready);

  kernels::Format format_;
  Entered entered_;
  memory::Pinned pinned_;
  std::deque<Entry> entries_;
};

}  // namespace outrigger::engine
