// SPDX-License-Identifier: Apache-2.0
// The micro-step order: a bucket whose parameters are complete is reduced in the background while
// the host computes the next; acc = round(float32(acc) + s) with s the sum over ranks.
//
// Buckets go out strictly in order, whatever the order of arrival, from a ring of buffers that all
// ranks can read. A gradient lands in its bucket's buffer if that is free, else in scratch until it
// is. Contributions to a parameter beyond the declared number are summed apart and reduced when the
// pass ends, whether or not its bucket had gone out: so bits depend neither on timing nor on bucket
// sizes.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include "core/base/bits.h"
#include "core/base/serial_worker.h"
#include "core/engine/reduce.h"

namespace outrigger::engine {

class MicroStepReducer final : public Reducer {
 public:
  MicroStepReducer(const ReduceContext& context, std::unique_ptr<comm::Communicator> comm);
  ~MicroStepReducer() override { stop(); }

  std::unique_ptr<GradientSink> begin_pass() override;
  Summed finish() override;
  [[nodiscard]] std::byte* gradient(const layout::Piece& piece) const override;
  void check() override { worker_.check(); }
  void wait_idle() override;
  void give_up(int32_t culprit) noexcept override { comm_->give_up(culprit); }
  void stop() noexcept override;

 private:
  // One parameter's gradient in one pass.
  struct Entry {
    std::mutex mutex;
    int32_t contributions = 0;
    bool complete = false;       // all declared contributions are here, the buffer is ours
    std::byte* slot = nullptr;   // handed out, not handed back
    memory::Block slot_scratch;  // the slot's memory, where its place was taken or is not in front
    std::byte* value =
        nullptr;  // the sum so far, compute dtype: in the bucket's buffer or in scratch
    memory::Block scratch;
    memory::Block late;                  // contributions beyond the declared number
    InFlight in_flight, late_in_flight;  // on value, on late
  };
  struct Pass {
    Pass(size_t parameters, size_t buckets) : entries(parameters), missing(buckets) {}
    std::deque<Entry> entries;
    std::vector<std::atomic<int64_t>> missing;  // parameters of a bucket that are not complete
    uint64_t first_turn = 0;                    // turn of bucket 0
    bool first_of_window = false;
    std::atomic<bool> contributed{false};
    bool ended = false, abandoned = false;  // guarded by launch_mutex_ until the end is enqueued
  };
  class Sink;
  // Work of the background thread: a bucket, the end of a pass, or (no pass) its own end.
  struct Item {
    std::shared_ptr<Pass> pass;
    int64_t bucket = -1;
  };

  void on_clear() override;
  void* slot(Pass& pass, int64_t root);
  void add(Pass& pass, int64_t root, const Gradient& gradient);
  void end(Pass& pass, bool abandoned);
  void enqueue(Item item);
  // Sends out what is complete, strictly in order: a pass that began later waits.
  void launch_complete();
  // The parameter's place in its bucket's buffer, or null if that is still in use.
  [[nodiscard]] std::byte* free_place(const Pass& pass, int64_t root) const;
  void take(const Pass& pass, Entry& entry, int64_t root, const Gradient& gradient, bool is_slot);

  void process(const Item& item);
  void reduce_bucket(const Pass& pass, const Item& item);
  void end_of_pass(Pass& pass);
  void reduce_late(Pass& pass, int64_t index, const Bits& late);
  [[nodiscard]] comm::Reduce reduction(const layout::Bucket& bucket, const comm::Window& window,
                                       size_t offset, bool add);
  void place_parameter(std::byte* buffer, const layout::Bucket& bucket, int64_t root,
                       const std::byte* value) const;
  [[nodiscard]] std::byte* accumulator(int64_t flat, int64_t shard) const;
  [[nodiscard]] std::byte* buffer(uint64_t turn) const;
  [[nodiscard]] size_t buffer_offset(uint64_t turn) const;

  std::unique_ptr<comm::Communicator> comm_;
  kernels::Format compute_, format_;  // of buckets, of accumulators
  bool whole_;                        // stage 0: the accumulator spans the flat space
  uint64_t buffers_;
  std::shared_ptr<comm::Window> ring_, late_ring_, whole_window_;
  memory::Charge ring_charge_, late_charge_, whole_charge_;
  device::Pinned pinned_;
  memory::Block shard_;

  // Host side.
  std::mutex launch_mutex_;
  std::deque<std::shared_ptr<Pass>>
      passes_;               // whose end is not on its way; guarded, as is the next
  int64_t next_bucket_ = 0;  // of the first of them
  uint64_t next_turn_ = 0;
  int64_t passes_in_window_ = 0;
  size_t buckets_gathered_ = 0;  // by finish, in this window

  // Background side: touched by the host only when the queue is empty and the thread idle.
  std::vector<kernels::NormSum> norms_;  // of this rank's slice of each bucket
  device::Nonfinite origin_;
  bool discard_ = false;
  uint64_t late_ticket_ = 0;
  bool late_used_ = false;

  std::vector<std::atomic<uint64_t>> tickets_;  // of the last turn that used a buffer
  std::atomic<uint64_t> turns_done_{0};         // turns whose fold is done on this rank

  SerialWorker worker_{"the gradients' reduction"};
};

}  // namespace outrigger::engine
