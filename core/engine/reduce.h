// SPDX-License-Identifier: Apache-2.0
// From the gradients that the host hands over to their sum over ranks and passes.
//
// Two orders, each with the same bits on every stage, bucket size and worker count:
//   micro_step: every pass is reduced as its buckets fill, in the background (reduce_micro_step.h);
//   boundary:   passes are added up locally, and reduced at the end of the window
//   (reduce_boundary.h).
// A window is what lies between two updates: one pass or several.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/comm/direct.h"
#include "core/comm/exchange.h"
#include "core/config/config.h"
#include "core/device/device.h"
#include "core/engine/devices.h"
#include "core/engine/movable.h"
#include "core/engine/plan.h"
#include "core/layout/layout.h"
#include "core/memory/block.h"
#include "core/memory/pinned.h"
#include "core/observe/timeline.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

// What the window's reduction found in this rank's slices.
struct Summed {
  kernels::NormSum norm;
  device::Nonfinite origin;
  bool discard = false;  // a pass was abandoned after something had been added to it
};

// What all reducers work on.
struct ReduceContext {
  int32_t rank, slice;  // this rank's
  const layout::Model* model;
  const layout::Layout* layout;
  const config::EngineConfig* config;
  const Side* side;  // whose buckets it reduces
  memory::Ledger* ledger;
  Devices devices;
  std::shared_ptr<comm::DirectRanks> direct;  // what moves a device's memory, or null
  const memory::Block* sums = nullptr;        // there, by bucket: norms go to it, and nobody waits
  observe::Timeline* timeline = nullptr;
  [[nodiscard]] device::Device& back() const { return devices.of(side->back); }
  [[nodiscard]] bool offloaded() const { return devices.front != &back(); }
  [[nodiscard]] std::span<const layout::Bucket> buckets() const {
    return std::span(layout->buckets())
        .subspan(static_cast<size_t>(side->begin), static_cast<size_t>(side->end - side->begin));
  }
  [[nodiscard]] const layout::Bucket& bucket(int64_t index) const {  // of these
    return layout->bucket(side->begin + index);
  }
};

// A gradient as the host gives it: a tensor in front, in the order of a stream, to be multiplied.
struct Gradient {
  const tensor::View& view;
  float factor;
  device::Stream stream;
};

// One pass's way into a reducer, which has to outlive it.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // A place in front for the gradient of a trainable, non-empty root: compute dtype,
  // uninitialised, for work that comes after in the stream. Any thread.
  virtual void* slot(int64_t root, device::Stream stream) = 0;
  // Adds a gradient: the slot itself (same address) or any tensor. Any thread.
  virtual void add(int64_t root, const Gradient& gradient) = 0;
  // The last call.
  virtual void end(bool abandoned) = 0;
};

// What the ledger has of this rank's block of a window.
struct Entered {
  memory::Charge charge;
  memory::PageNote note;
};

// Of the buckets of one side.
class Reducer {
 public:
  // The exchange is the reducer's own.
  Reducer(const ReduceContext& context, std::unique_ptr<comm::Exchange> exchange);
  virtual ~Reducer();  // a reducer's own destructor calls stop first
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Several may be open; every rank begins them in the same order.
  [[nodiscard]] virtual std::unique_ptr<GradientSink> begin_pass() = 0;

  // Completes the window's sums; called again after an interrupt, it goes on. Collective.
  Summed finish();
  // The summed gradient of a piece, in the accumulator's format; valid between finish and clear.
  [[nodiscard]] virtual std::byte* gradient(const layout::Piece& piece) const = 0;
  // The norm of this rank's slices as they are now: between finish and clear, after a change.
  [[nodiscard]] kernels::NormSum norm() const;
  // Begins a new window; every rank has finished the last one.
  void clear();
  // Throws the first failure of the window's sums; never waits.
  void check() { exchange_->check(); }
  // Waits until what has begun is done, or throws its failure.
  void wait_idle() { exchange_->wait_all(); }
  // Tells ranks that wait in a reduction that this one will not come. Any thread.
  void give_up(int32_t culprit) noexcept { exchange_->give_up(culprit); }
  // Ends what runs without waiting for other ranks.
  void stop() noexcept { exchange_->stop(); }
  // A device's memory for gradients, while none are under way.
  virtual void list_movable(std::vector<Movable>& all) = 0;

  // Whether this rank has a gradient for it in this window.
  [[nodiscard]] bool is_present(int64_t root) const {
    return present_[static_cast<size_t>(root)] != 0;
  }
  void mark_present(int64_t root) {  // passes beside each other may
    std::atomic_ref(present_[static_cast<size_t>(root)]).store(1, std::memory_order_relaxed);
  }

 protected:
  // Begins what the window's sums still lack.
  virtual void begin_sums() {}
  virtual void on_clear() = 0;
  // Every rank's block of so many bytes in the back, readable by all.
  [[nodiscard]] std::shared_ptr<comm::Window> make_window(int64_t bytes, memory::Purpose purpose,
                                                          const char* label, Entered& entered);
  // The last use of one that may have had slots.
  void let_go(std::shared_ptr<comm::Window>& window) const noexcept;
  void list_window(std::vector<Movable>& all, memory::Purpose purpose,
                   const std::shared_ptr<comm::Window>& window, Entered& entered) const;
  // The host's memory, for copies of the front.
  [[nodiscard]] memory::Pinned pinned(std::span<std::byte> memory) const {
    return {front(), *context_.ledger, memory, context_.config->pin};
  }
  // The sum of a bucket whose values begin at `offset` of each rank's block, to its accumulator.
  [[nodiscard]] comm::Reduction reduction(const layout::Bucket& bucket, const comm::Window& window,
                                          size_t offset, kernels::Format from, bool add,
                                          const char* label);
  // destination, which is in front, = grad × factor, or += in float32, after `ready`, which it then
  // moves on. A gradient counts in the compute dtype: it is rounded to that first.
  void deposit(void* destination, kernels::Format to, bool first, const Gradient& gradient,
               device::Event& ready);
  // Runs body(gradient × factor, rounded to the compute dtype and row-major, in front): where that
  // is a copy, until the gradient's stream has used it.
  template <typename Body>
  void with_rounded(const Gradient& gradient, const Body& body) const {
    if (is_rounded(gradient)) return body(static_cast<const void*>(gradient.view.data));
    const memory::Block copy = rounded(gradient);
    body(static_cast<const void*>(copy.data()));
  }
  // A slot that was filled in place, × factor; the event after which it is so.
  device::Event rescale(void* slot, const Gradient& gradient) const;
  // In front, for work of this stream; see Device::allocate.
  [[nodiscard]] memory::Block scratch_for(int64_t root, device::Stream stream) const;
  // Of a slot: its pass's where nobody waits, else none, so that any stream may write it.
  [[nodiscard]] device::Stream slot_stream(device::Stream stream) const {
    return context_.sums == nullptr ? device::kNoStream : stream;
  }
  [[nodiscard]] kernels::Format compute() const { return context_.config->compute; }
  [[nodiscard]] device::Device& front() const { return *context_.devices.front; }
  [[nodiscard]] device::Device& back() const { return context_.back(); }
  // A slot comes back as it went out: row-major, compute dtype. Throws OTR_E_SHAPE, OTR_E_DTYPE.
  void check_slot(int64_t root, const tensor::View& grad) const;
  [[noreturn]] void slot_is_out(int64_t root) const;

  ReduceContext context_;
  const std::unique_ptr<comm::Exchange> exchange_;
  std::shared_ptr<comm::Window> whole_;  // every rank's accumulator of all buckets, if any
  std::atomic<bool> discard_{false};

 private:
  // This rank's slice.
  [[nodiscard]] layout::Piece slice_of(const layout::Bucket& bucket) const {
    return {-1, 0, bucket.slice, bucket.begin + context_.slice * bucket.slice, bucket.shard};
  }
  void begin_gather();
  // Whether the view has the values that count, and a copy that has.
  [[nodiscard]] bool is_rounded(const Gradient& gradient) const;
  [[nodiscard]] memory::Block rounded(const Gradient& gradient) const;

  memory::Charge staging_charge_, received_charge_, device_charge_;
  std::vector<uint8_t> present_;         // by root
  bool finishing_ = false;               // finish was called in this window
  std::vector<kernels::NormSum> norms_;  // of this rank's slice of each bucket; the exchange's
  device::Nonfinite origin_;             // … this, too
};

}  // namespace outrigger::engine
