// SPDX-License-Identifier: Apache-2.0
// Whether an engine can go on: what its calls require, and what becomes of it after a failure or an
// interrupt.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/comm/group.h"

namespace outrigger::engine {

// When a call that the host interrupted can be made again: never, while no operation of it was
// complete, or at any moment, because its body knows how far it came.
enum class Again : uint8_t { never, at_first, always };

class Health {
 public:
  // on_failure: tells the other ranks, whatever the failure, and the host's log, if it is the
  // first.
  using OnFailure = std::function<void(const Error&, bool first)>;
  Health(const comm::Group& group, OnFailure on_failure)
      : group_(&group), on_failure_(std::move(on_failure)) {}
  // Whose operations collective calls make from now on; null: none any more.
  void watch(const comm::Group* group) { group_ = group; }

  // Throws OTR_E_POISONED after a failure; OTR_E_STATE while a step is pending, or another call is
  // to be made again.
  void require(const char* call) const;
  // The same of a call that may come before the report of a pending step, once that is over, whose
  // own failure it throws.
  void require_before_report(const char* call) const;
  // While a step is pending, which decides what is asked for.
  void require_not_pending(const char* call) const;
  // Throws the failure itself.
  void check() const;

  void poison(const Error& error) noexcept;
  void poison_with_current() noexcept;  // in a catch clause

  // Runs a local part of a call: a failure of the device in it poisons the engine.
  template <typename Body>
  auto on_device(const Body& body) -> decltype(body());
  // Runs a collective part: a failure in it poisons the engine, an interrupt may leave the call to
  // be made again.
  // arguments: a hash of what the call was given, where it matters that it is made again with that.
  template <typename Body>
  void collective(const char* call, Again again, const Body& body, uint64_t arguments = 0);

  // The call that is to be made again, or null.
  [[nodiscard]] const char* interrupted() const { return interrupted_; }
  void set_interrupted(const char* call) { interrupted_ = call; }

  bool is_pending = false;  // a step that was begun, and whose report is not fetched yet

 private:
  // Under mutex_.
  void require_uninterrupted(const char* call) const;
  void require_same_arguments(const char* call, uint64_t arguments);
  // In collective's catch clause.
  void failed(const char* call, Again again, uint64_t completed) noexcept;
  [[nodiscard]] bool can_be_made_again(Again again, uint64_t completed) const noexcept;

  const comm::Group* group_;
  const OnFailure on_failure_;
  mutable std::mutex mutex_;
  std::optional<Error> failure_;       // guarded by mutex_
  const char* interrupted_ = nullptr;  // the call that is to be made again
  uint64_t arguments_ = 0;             // … with these
};

[[nodiscard]] bool is_usable(const comm::Group& group) noexcept;

template <typename Body>
auto Health::on_device(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.status() == OTR_E_DEVICE_FAULT) poison(error);
    throw;
  }
}

template <typename Body>
void Health::collective(const char* call, Again again, const Body& body, uint64_t arguments) {
  require_same_arguments(call, arguments);
  const uint64_t completed = group_->completed();
  try {
    body();
  } catch (...) {
    failed(call, again, completed);
    throw;
  }
  interrupted_ = nullptr;
}

}  // namespace outrigger::engine
