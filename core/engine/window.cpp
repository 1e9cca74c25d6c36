// SPDX-License-Identifier: Apache-2.0
// What the host may do with a window beside the step: update the weights itself, between reduce and
// step (optimizer.type "Host"), or drop it.
#include "core/comm/combine.h"
#include "core/engine/step.h"

namespace outrigger::engine {

bool Engine::has_grad(int64_t id) const {
  require(State::committed, "otr_engine_has_grad");
  const layout::Parameter& root = model_.root(id);
  if (!reduced_) {
    fail(OTR_E_STATE,
         "otr_engine_has_grad: which parameters have a gradient is known between otr_engine_reduce "
         "and otr_engine_step");
  }
  if (!root.trainable) return false;
  return is_updated(reduced_->decision, root.root) ||
         reducer_->present()[static_cast<size_t>(root.root)] != 0;
}

// The step of an engine whose weights the host has updated.
void Engine::require_reduced(const char* call) const {
  if (reduced_) return;
  fail(OTR_E_STATE,
       "{}: with optimizer.type \"Host\" the weights are updated before the step that ends a "
       "window: call otr_engine_reduce, then write OTR_VALUE_MASTER, then step",
       call);
}

// Before the host writes a weight between reduce and step.
void Engine::require_updatable(const char* call) const {
  if (reduced_->decision.skip == OTR_SKIP_NONE) return;
  fail(OTR_E_STATE,
       "{}: the update of this window is skipped on all ranks (reason {} in the report of "
       "otr_engine_reduce): leave the weights, and call otr_engine_step",
       call, reduced_->decision.skip);
}

void Engine::refuse_updated(const char* call) {
  fail(OTR_E_STATE,
       "{}: after the last otr_engine_reduce of this window a rank has written weights: call "
       "otr_engine_step",
       call);
}

void Engine::discard() {
  constexpr const char* kCall = "otr_engine_discard";
  require(State::committed, kCall);
  require_no_pass(kCall);
  check();
  bool updated = false;
  collective(kCall, Again::always, [&] {
    if (reduced_ && reduced_->summed) {
      if (!config_.optimizer.host) return;
      updated = comm::any(*control_, reduced_->updated, "drop a window");
      return;
    }
    if (!reduced_) agree_on_window();
    await_streams();
    if (device_)
      device_->synchronize(device_->own_stream());  // what is being copied is dropped, too
    if (!reduced_) reduced_ = std::make_unique<Reduced>();
    // In the micro-step order ranks have begun to sum them.
    if (config_.order == config::Order::micro_step) static_cast<void>(reducer_->finish());
  });
  if (updated) refuse_updated(kCall);
  clear_window();
}

}  // namespace outrigger::engine
