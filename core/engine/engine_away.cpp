// SPDX-License-Identifier: Apache-2.0
// States that leave the device for a while.
#include <string>
#include <utility>
#include <vector>

#include "core/comm/combine.h"
#include "core/engine/engine.h"
#include "core/engine/together.h"

namespace outrigger::engine {
namespace {

constexpr const char* kOffload = "otr_engine_offload_states";
constexpr const char* kReload = "otr_engine_reload_states";

std::string names_of_states(int32_t states) {
  static constexpr std::pair<int32_t, const char*> kNames[] = {
      {OTR_STATES_PUBLISHED, "published parameters"},
      {OTR_STATES_MASTER, "master weights"},
      {OTR_STATES_MOMENTS, "moments"},
      {OTR_STATES_GRADIENTS, "memory for gradients"}};
  std::string names;
  for (const auto& [state, name] : kNames) {
    if ((states & state) != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace

void Engine::require_here(int32_t states, const char* call) const {
  if ((states_away_ & states) == 0) return;
  fail(OTR_E_STATE, "{}: {} left the device with {}: call {} first", call,
       names_of_states(states_away_ & states), kOffload, kReload);
}

void Engine::require_readable(int32_t value, const char* call) {
  require_here(value == OTR_VALUE_PUBLISHED ? OTR_STATES_PUBLISHED : kAllOfIt, call);
  hear();
}

void Engine::offload_states(int32_t states, bool page_lock) {
  require_between_windows(kOffload);
  require_here(kAllOfIt, kOffload);
  check();
  comm::Compared<int32_t> asked{states, states, control_->rank()};
  health_.collective(kOffload, Again::at_first, [&] {
    asked = comm::compare(*control_, states, kOffload);
    window_->reducer().wait_idle();
    committed_->gather.settle();
  });
  if (asked.rank >= 0) {
    fail(OTR_E_MISMATCH, "{}: rank {} moves {}, rank 0 {}: every rank moves the same", kOffload,
         asked.rank, names_of_states(asked.other), names_of_states(asked.first));
  }
  std::unique_ptr<Away> away;
  const auto collective = [this](const auto& body) {
    health_.collective(kOffload, Again::never, body);
  };
  const auto take = [&] {
    if ((states & OTR_STATES_PUBLISHED) != 0) committed_->gather.require_none_acquired(kOffload);
    if (!declared_.device) return;  // it is host memory already
    std::vector<Movable> all;
    committed_->published.list_movable(all, declared_.ledger);
    committed_->states->list_movable(all);
    window_->list_movable(all);
    std::erase_if(all, [&](const Movable& each) { return (each.kind & states) == 0; });
    declared_.ledger.touch_all();
    away = std::make_unique<Away>(*declared_.device, declared_.ledger,
                                  page_lock ? config().pin : config::Pin::off, std::move(all));
  };
  health_.on_device([&] { Together(*control_, kOffload, collective).run(take); });
  collective([&] {
    if ((states & OTR_STATES_PUBLISHED) != 0) committed_->gather.end_all();
    if (away) away->leave();
  });
  away_ = std::move(away);
  states_away_ = states;
}

void Engine::reload_states() {
  require(State::committed, kReload);
  if (states_away_ == 0) {
    fail(OTR_E_STATE, "{}: all states are where commit has put them: {} comes first", kReload,
         kOffload);
  }
  check();
  const auto collective = [this](const auto& body) {
    health_.collective(kReload, Again::never, body);
  };
  try {
    const auto take = [&] {
      if (away_) away_->take_room();
    };
    health_.on_device([&] { Together(*control_, kReload, collective).run(take); });
  } catch (...) {
    if (away_) away_->give_up_room();
    throw;
  }
  collective([&] {
    if (away_) away_->come_back();
  });
  away_.reset();
  states_away_ = 0;
}

}  // namespace outrigger::engine
