// SPDX-License-Identifier: Apache-2.0
// The boundary order: acc = round(float32(acc) + g) locally for every contribution, one reduction a
// window.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include "core/engine/reduce.h"

namespace outrigger::engine {

class BoundaryReducer final : public Reducer {
 public:
  BoundaryReducer(const ReduceContext& context, std::unique_ptr<comm::Communicator> comm);

  void begin_pass() override { contributed_ = false; }
  void* slot(int64_t root) override;
  void add(int64_t root, const tensor::View& grad) override;
  void end_pass(bool abandoned) override;
  Summed finish() override;
  [[nodiscard]] const void* gradient(const layout::Piece& piece) const override;

 private:
  struct Entry {
    std::mutex mutex;
    void* slot = nullptr;   // handed out, not handed back
    memory::Block scratch;  // the slot's memory, where its place was taken
    memory::Block waiting;  // what came while the slot in the accumulator was out
    bool filled = false;    // in this window
  };
  void on_clear() override;
  [[nodiscard]] std::byte* at(int64_t flat) const;
  void settle(Entry& entry, std::byte* place, int64_t count);
  void zero_missing();

  std::unique_ptr<comm::Communicator> comm_;
  kernels::Format format_;
  std::shared_ptr<comm::Window> window_;  // every rank's accumulator of the whole flat space
  memory::Charge charge_;
  std::deque<Entry> entries_;
  std::atomic<bool> contributed_{false};
  bool discard_ = false;
};

}  // namespace outrigger::engine
