// SPDX-License-Identifier: Apache-2.0
#include "core/context/interrupt.h"

#include <utility>

namespace outrigger {
namespace {

thread_local Interruptible* current = nullptr;

}  // namespace

Interruptible::Interruptible(const Context& context)
    : context_(context.can_interrupt() ? &context : nullptr) {
  if (context_ != nullptr) outer_ = std::exchange(current, this);
}

Interruptible::~Interruptible() {
  if (context_ != nullptr) current = outer_;
}

bool interrupted(Interruptible::Clock::time_point now) {
  constexpr auto kPause = std::chrono::milliseconds(25);  // waits look around every 50 ms or less
  Interruptible* const scope = current;
  if (scope == nullptr) return false;
  // A first short sleep is not worth a question, which may cost the host a lock.
  if (scope->asked_ == Interruptible::Clock::time_point{}) scope->asked_ = now;
  if (now - scope->asked_ < kPause) return false;
  scope->asked_ = now;
  current = nullptr;  // a wait inside of the callback, wrong as it is, does not ask again
  const bool wanted = scope->context_->wants_interrupt();
  current = scope;
  return wanted;
}

}  // namespace outrigger
