// SPDX-License-Identifier: Apache-2.0
#include "core/engine/health.h"

#include <new>
#include <string_view>

namespace outrigger::engine {

void Health::require(const char* call) const {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    fail(OTR_E_POISONED,
         "{}: this engine cannot go on after: {}. Destroy it and restart from a checkpoint", call,
         failure_->what());
  }
  require_not_pending(call);
  require_uninterrupted(call);
}

void Health::require_before_report(const char* call) const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
  require_uninterrupted(call);
}

void Health::require_uninterrupted(const char* call) const {
  if (interrupted_ != nullptr && std::string_view(call) != interrupted_) {
    fail(OTR_E_STATE, "{}: {} was interrupted while it waited for other ranks: make it again first",
         call, interrupted_);
  }
}

void Health::require_not_pending(const char* call) const {
  if (is_pending) {
    fail(OTR_E_STATE, "{}: a step is pending: wait for its report with otr_engine_report first",
         call);
  }
}

void Health::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

bool is_usable(const comm::Group& group) noexcept {
  try {
    group.check();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void Health::require_same_arguments(const char* call, uint64_t arguments) {
  if (interrupted_ != nullptr && arguments != arguments_) {
    fail(OTR_E_STATE,
         "{} was interrupted while it waited for other ranks, and is called with other arguments: "
         "make it again with the same ones first",
         call);
  }
  arguments_ = arguments;
}

// Interrupted in the middle of an operation, the job is over.
bool Health::can_be_made_again(Again again, uint64_t completed) const noexcept {
  return again != Again::never && is_usable(*group_) &&
         (again == Again::always || group_->completed() == completed);
}

void Health::failed(const char* call, Again again, uint64_t completed) noexcept {
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

void Health::poison(const Error& error) noexcept {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !failure_;
    if (first) failure_ = error;
  }
  on_failure_(error, first);
}

void Health::poison_with_current() noexcept {
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

}  // namespace outrigger::engine
