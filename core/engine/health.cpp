// SPDX-License-Identifier: Apache-2.0
// Whether the engine can go on: what a call requires, and what becomes of it after a failure.
#include <new>
#include <string_view>

#include "core/engine/engine.h"

namespace outrigger::engine {

void Engine::require_healthy(const char* call) const {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) {
    fail(OTR_E_POISONED,
         "{}: this engine cannot go on after: {}. Destroy it and restart from a checkpoint", call,
         failure_->what());
  }
  require_not_pending(call);
  if (interrupted_ != nullptr && std::string_view(call) != interrupted_) {
    fail(OTR_E_STATE, "{}: {} was interrupted while it waited for other ranks: make it again first",
         call, interrupted_);
  }
}

void Engine::require_not_pending(const char* call) const {
  if (is_pending_) {
    fail(OTR_E_STATE, "{}: a step is pending: wait for its report with otr_engine_report first",
         call);
  }
}

bool Engine::is_usable(const comm::Group& group) noexcept {
  try {
    group.check();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void Engine::require_same_arguments(const char* call, uint64_t arguments) {
  if (interrupted_ != nullptr && arguments != arguments_) {
    fail(OTR_E_STATE,
         "{} was interrupted while it waited for other ranks, and is called with other arguments: "
         "make it again with the same ones first",
         call);
  }
  arguments_ = arguments;
}

// Interrupted in the middle of an operation, the job is over.
bool Engine::can_be_made_again(Again again, uint64_t completed) const noexcept {
  const comm::Group& group = control_ ? *control_ : *comm_;
  return again != Again::never && is_usable(group) &&
         (again == Again::always || group.completed() == completed);
}

void Engine::failed(const char* call, Again again, uint64_t completed) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    // The interrupted call with other arguments: refused before anything was done.
    if (interrupted_ != nullptr && error.status() == OTR_E_STATE) return;
    if (error.status() == OTR_E_INTERRUPTED && can_be_made_again(again, completed)) {
      interrupted_ = call;
      return;
    }
  } catch (...) {
  }
  poison_with_current();
}

void Engine::require(State state, const char* call) const {
  require_healthy(call);
  if (state_ == state) return;
  static constexpr const char* kNow[] = {"not committed yet: call otr_engine_commit first",
                                         "committed already: declarations are closed", "finalized"};
  fail(OTR_E_STATE, "{}: the engine is {}", call, kNow[static_cast<size_t>(state_.load())]);
}

void Engine::require_no_pass(const char* call) const {
  if (open_passes_ > 0) {
    fail(OTR_E_STATE,
         "{}: a backward pass is open; end it with otr_pass_end (or give it up with "
         "otr_pass_destroy) first",
         call);
  }
}

void Engine::poison(const Error& error) noexcept {
  // The other ranks cannot know of this one's device: they are told.
  const bool of_device =
      error.status() == OTR_E_DEVICE_FAULT || (device_ && error.status() == OTR_E_OUT_OF_MEMORY);
  if (of_device && control_) control_->abort(error.what());
  // Nor of other trouble: who waits for this rank shall not wait for the deadline, and hears of the
  // rank where it began.
  if (control_) {
    const int32_t culprit = error.culprit() < 0 ? control_->rank() : error.culprit();
    if (reducer_) reducer_->give_up(culprit);
    if (gather_) gather_->give_up(culprit);
    if (storage_) storage_->give_up(culprit);
    control_->give_up(culprit);
  }
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = error;
  }
  log_failure(error);
}

void Engine::poison_with_current() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    poison(error);
  } catch (const std::bad_alloc&) {
    poison(Error(OTR_E_OUT_OF_MEMORY, "memory ran out in a collective call"));
  } catch (const std::exception& error) {
    poison(Error(OTR_E_INTERNAL, error.what()));
  } catch (...) {
    poison(Error(OTR_E_INTERNAL, "an exception of unknown type"));
  }
}

void Engine::check() {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) throw Error(*failure_);
  }
  const std::shared_lock lock(life_mutex_);
  if (state_ != State::committed) return;
  try {
    reducer_->check();
    gather_->check();
    control_->check();
  } catch (...) {
    poison_with_current();
    throw;
  }
}

}  // namespace outrigger::engine
