// SPDX-License-Identifier: Apache-2.0
// The micro-step order: a bucket whose parameters are complete is reduced in the background while
// the host computes the next; acc = round(float32(acc) + s) with s the sum over ranks.
//
// Buckets go out strictly in order, whatever the order of arrival, from a ring of buffers that all
// ranks can read. A gradient lands in its bucket's buffer if that is free, else in scratch until it
// is. Where the sums are made on the host for a device (offload), buckets are packed on the device,
// in a ring of as many buffers, and each comes down in one copy beside what the device does. A host
// that is further ahead of its device than the ring is long waits for it, and for nothing else.
// Contributions to a parameter beyond the declared number are summed apart and reduced when the
// pass ends, whether or not its bucket had gone out: so bits depend neither on timing nor on bucket
// sizes.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "core/base/bits.h"
#include "core/engine/reduce.h"

namespace outrigger::engine {

class MicroStepReducer final : public Reducer {
 public:
  MicroStepReducer(const ReduceContext& context, std::unique_ptr<comm::Exchange> exchange);
  ~MicroStepReducer() override {
    stop();
    let_go(ring_);
  }

  std::unique_ptr<GradientSink> begin_pass() override;
  [[nodiscard]] std::byte* gradient(const layout::Piece& piece) const override {
    return accumulator(piece.flat, piece.shard);
  }
  void list_movable(std::vector<Movable>& all) override;

 private:
  // One parameter's gradient in one pass.
  struct Entry {
    std::mutex mutex;
    int32_t contributions = 0;
    bool complete = false;       // all declared contributions are here, the buffer is ours
    std::byte* slot = nullptr;   // handed out, not handed back
    memory::Block slot_scratch;  // the slot's memory, where its place was taken
    std::byte* value =
        nullptr;  // the sum so far, compute dtype: in the bucket's buffer or in scratch
    memory::Block scratch;
    memory::Block late;               // contributions beyond the declared number
    device::Event ready, late_ready;  // value is, late is
  };
  struct Pass {
    Pass(size_t parameters, size_t buckets)
        : entries(parameters),
          missing(buckets),
          packed(buckets),
          late(static_cast<int64_t>(parameters) + 1) {}
    std::deque<Entry> entries;
    std::vector<std::atomic<int64_t>> missing;  // parameters of a bucket that are not complete
    // Of a bucket that was filled before its operation: its buffer is full. Guarded by
    // launch_mutex_ until the operation is begun.
    std::vector<std::optional<device::Event>> packed;
    uint64_t first_turn = 0;  // turn of bucket 0
    bool first_of_window = false;
    std::atomic<bool> contributed{false};
    bool ended = false, abandoned = false;  // guarded by launch_mutex_ until the end is begun
    // Parameters that are late somewhere; the last bit: the window is to be discarded.
    Bits late;
  };
  class Sink;

  void on_clear() override;
  void* slot(Pass& pass, int64_t root, device::Stream stream);
  void add(Pass& pass, int64_t root, const Gradient& gradient);
  void end(Pass& pass, bool abandoned);
  // Sends out what is complete, strictly in order: a pass that began later waits.
  void launch_complete();
  // The parameter's place in its bucket's buffer, or null if that is still in use.
  [[nodiscard]] std::byte* free_place(const Pass& pass, int64_t root) const;
  // Where nobody waits for sums: after this event, the one before has been read of that place.
  [[nodiscard]] device::Event last_sum() const {
    return context_.sums == nullptr ? device::Event() : front().record(fill_stream());
  }
  void take(const Pass& pass, Entry& entry, int64_t root, const Gradient& gradient, bool is_slot);

  void begin_bucket(const std::shared_ptr<Pass>& pass, int64_t index);
  void begin_end(const std::shared_ptr<Pass>& pass);
  [[nodiscard]] bool is_free(uint64_t turn) const;
  // Where the buffer is not free because the host is ahead of its own device: waits for that.
  void keep_near(uint64_t turn);
  [[nodiscard]] uint64_t turn_of(const Pass& pass, int64_t root) const {
    return pass.first_turn + static_cast<uint64_t>(index_of(root));
  }
  // Of its bucket, among the side's.
  [[nodiscard]] int64_t index_of(int64_t root) const {
    return context_.layout->position(root).bucket - context_.side->begin;
  }
  // The event after which the ranks' buffer is full; its work is on fill_stream().
  device::Event fill_bucket(Pass& pass, int64_t index);
  // In the sequence.
  void fill_late_bucket(Pass& pass, int64_t index);
  void find_late(Pass& pass) const;
  [[nodiscard]] std::vector<comm::Reduction> late_reductions(const std::shared_ptr<Pass>& pass);
  void place_parameter(std::byte* buffer, const layout::Bucket& bucket, int64_t root,
                       const std::byte* value) const;
  // What was filled in front, to the ranks' buffer; the event after which it is there.
  device::Event bring(std::byte* to, const std::byte* from, const layout::Bucket& bucket) const;
  // Of filling buffers and what follows: with offload beside the device's other work.
  [[nodiscard]] device::Stream fill_stream() const {
    return context_.offloaded() ? front().download_stream() : back().own_stream();
  }
  [[nodiscard]] std::byte* accumulator(int64_t flat, int64_t shard) const;
  [[nodiscard]] std::byte* buffer(uint64_t turn) const;  // in front
  [[nodiscard]] size_t buffer_offset(uint64_t turn) const;

  kernels::Format compute_, format_;  // of buckets, of accumulators
  uint64_t buffers_;
  std::shared_ptr<comm::Window> ring_, late_ring_;  // the second one is the sequence's
  Entered ring_entered_, late_entered_, whole_entered_;
  memory::Pinned pinned_, late_pinned_;
  memory::Block shard_;
  memory::Block packing_, late_packing_;  // in front, with offload: a ring as ring_, and one bucket

  // Host side.
  std::mutex launch_mutex_;
  std::deque<std::shared_ptr<Pass>>
      passes_;               // whose end is not on its way; guarded, as is the next
  int64_t next_bucket_ = 0;  // of the first of them
  uint64_t next_turn_ = 0;
  int64_t passes_in_window_ = 0;

  std::vector<device::Event> produced_;  // of the last turns: the device has its gradients; guarded
  std::vector<std::atomic<uint64_t>> tickets_;  // of the last turn that was given a buffer
  std::atomic<uint64_t> turns_begun_{0};
};

}  // namespace outrigger::engine
