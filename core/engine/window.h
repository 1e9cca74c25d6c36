// SPDX-License-Identifier: Apache-2.0
// What lies between two updates: passes, the sum of their gradients, and what all ranks decide on
// it. See reduce.h for how the sum is made.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "core/base/bits.h"
#include "core/engine/committed.h"
#include "core/engine/device_decision.h"
#include "core/engine/reducers.h"
#include "core/engine/run.h"

namespace outrigger::engine {

using tensor::Tag;

// What phase 1 of a step decides, alike on all ranks.
struct Decision {
  int32_t skip = OTR_SKIP_NONE;
  double mean = 1;  // turns the accumulated sum into the mean gradient, unscaled
  double norm = 0;  // of the mean gradient
  double clip = 1;  // coefficient
  int32_t nonfinite_rank = -1;
  int64_t nonfinite_param = -1;
  int64_t nonfinite_count = 0;
  Bits present;          // by root: some rank has a gradient
  bool updated = false;  // some rank's host has written a weight
};

class Window {
 public:
  // Collective. gradients: for the reduction alone.
  Window(Declared& declared, Committed& committed, Run& run,
         std::unique_ptr<comm::Communicator> gradients);

  // Passes. Every rank begins them in the same order; each is ended.
  [[nodiscard]] std::unique_ptr<GradientSink> begin_pass();
  void end_pass() { --open_passes_; }
  void require_no_pass(const char* call) const;
  void require_not_reduced(const char* call) const;
  // What turns gradients with this tag into gradients of a pass of this window.
  [[nodiscard]] double factor_for(const Tag& tag) const;
  // Of gradients that come out of a pass whose output gradients have this tag.
  [[nodiscard]] Tag tag_after(const Tag& tag) const;
  // A finite output gradient is not finite any more once scaled: the window will be skipped.
  void note_seed_overflow() { seed_overflow_ = true; }
  // The next step comes after what was given to this stream before it. Any thread.
  void note_stream(device::Stream stream);
  // What is given to this stream now on comes after what the callers' other ones were given.
  void come_after_callers(device::Stream stream);
  // The same for the device's own streams: what they write then may still be read by callers'.
  void come_after_callers();

  // The steps of a window: all but the last accumulate (is_boundary).
  void require_step(const char* call) const;
  [[nodiscard]] int64_t steps() const { return steps_; }
  void accumulate();

  // Phase 1. What was decided before is agreed on again: gradients may have been replaced since.
  // After an interrupt it goes on where it was. updates: the update follows. Collective.
  const Decision& reduce(bool updates);
  // Phase 1 where the device decides, which it does unless otr_engine_reduce has let the host see.
  [[nodiscard]] bool device_decides() const {
    return device_decision_ != nullptr && !(reduced_ && reduced_->agreed_once);
  }
  // Its two halves. The first may be made again after an interrupt; the second leaves what the host
  // knows, and the decision is on its way to the device.
  void sum(bool updates);
  [[nodiscard]] Decision decide_there();
  // The rest of it, once that has come.
  void complete(Decision& decision, const device::Decided& there) const;
  [[nodiscard]] DeviceDecision& device_decision() { return *device_decision_; }
  // What otr_engine_reduce has decided; null before.
  [[nodiscard]] const Decision* decision() const;
  // The last one stands, because a rank's host has written weights by it.
  [[nodiscard]] bool decision_stands() const { return reduced_ && reduced_->stands; }
  // In a joint step that is made again: this window has agreed.
  [[nodiscard]] bool has_agreed() const { return reduced_ && reduced_->agreed; }
  void set_agreed(bool agreed);
  [[nodiscard]] bool has_grad(const layout::Parameter& root) const;
  [[nodiscard]] bool is_updated(const Decision& decision, int64_t root) const;

  // Between reduce and step.
  [[nodiscard]] std::byte* gradient(const layout::Piece& piece) const {
    return reducer_.gradient(piece);
  }
  void note_replaced(int64_t root);
  void note_written();  // a weight, by the host
  // Before the host writes a weight by the decision.
  void require_updatable(const char* call) const;
  void require_reduced(const char* call) const;

  // Sums that nobody wants: true if they stand, because a rank's host has used them. Collective.
  [[nodiscard]] bool drop();
  // Begins the next window; every rank has ended this one.
  void clear();

  // Gradients were taken, or a pass was ever begun.
  [[nodiscard]] int64_t passes() const { return passes_; }
  [[nodiscard]] bool is_empty() const { return passes_ == 0 && steps_ == 0 && !reduced_; }
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  [[nodiscard]] bool has_open_passes() const { return open_passes_ > 0; }
  [[nodiscard]] Reducers& reducer() { return reducer_; }
  void list_movable(std::vector<Movable>& all);

 private:
  // Gradients that are summed and agreed on; the window takes no more.
  struct Reduced {
    Summed mine;
    bool summed = false;    // mine is complete, but for a norm that the device has
    bool has_norm = false;  // … with that
    bool agreed_once = false;
    bool agreed = false;    // decision is, in the joint step that is being made again
    bool replaced = false;  // a gradient was written here since
    bool updated = false;   // the host has written a weight here, by the decision
    bool stands = false;    // and so has some rank, when it was to be made again
    Decision decision;
  };
  [[nodiscard]] int32_t mean_ranks() const;  // that the sum over ranks is divided by
  [[nodiscard]] double mean() const;         // Decision's
  [[nodiscard]] Bits present() const;        // roots of which this rank has a gradient
  // What is not finite ends a window.
  [[nodiscard]] bool skips_nonfinite() const;
  void agree_on_window();
  [[nodiscard]] Decision agree_on_gradients(const Summed& summed);
  void await_streams();

  Declared& declared_;
  Committed& committed_;
  Run& run_;
  const std::unique_ptr<DeviceDecision> device_decision_;  // null: the host decides
  Reducers reducer_;
  std::mutex stream_mutex_;
  std::set<device::Stream> callers_streams_;  // of this window; guarded by stream_mutex_
  std::atomic<int64_t> open_passes_{0};
  int64_t passes_in_step_ = 0, passes_ = 0, steps_ = 0;
  bool has_begun_ = false;
  bool seed_overflow_ = false;  // on this rank
  std::optional<Reduced> reduced_;
};

[[noreturn]] void refuse_updated(const char* call);

}  // namespace outrigger::engine
