// SPDX-License-Identifier: Apache-2.0
// Several engines step as one: every engine's phase 1, one decision over all of them, every
// engine's phase 2. A failure before phase 2 leaves all parameters as they were.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/base/text.h"
#include "core/comm/gather_values.h"
#include "core/engine/step.h"
#include "core/optimizer/rule.h"

namespace outrigger::engine {
namespace {

// What one rank knows of the engines it has.
struct JointFacts {
  double squares = 0;  // of the norms of its engines: in a joint group, those whose rank 0 it is
  double clip = -1;    // gradient_clipping; −1: no engine here
  int32_t skip = 0;    // one of the engines skips
  int32_t status = OTR_OK;
  char text[480] = {};  // of the failure
};

}  // namespace

void Engine::step_many(std::span<Engine* const> engines, comm::Communicator* joint,
                       std::span<otr_step_report> reports) {
  constexpr const char* kCall = "otr_step_many";
  JointFacts mine;
  std::optional<Error> trouble;  // the first here, whole; the others get its beginning
  const auto note = [&](const Error& error) {
    if (trouble) return;
    trouble = error;
    mine.status = error.status();
    std::strncpy(mine.text, error.what(), sizeof mine.text - 1);
  };
  // Made again, the call goes on with the first engine that has not agreed.
  const auto interrupt = [&] {
    for (Engine* e : engines) e->interrupted_ = kCall;
  };
  // Whoever cannot take part tells the others instead of leaving them waiting.
  for (size_t i = 0; i < engines.size(); ++i) {
    Engine& e = *engines[i];
    try {
      if (std::count(engines.begin(), engines.end(), &e) > 1) {
        fail(OTR_E_ARGUMENT, "{}: an engine is given twice", kCall);
      }
      e.require_step(kCall);
      if (e.config_.optimizer.host) {
        fail(OTR_E_UNSUPPORTED,
             "{}: engine {} has optimizer.type \"Host\", whose weights are updated before the "
             "engines agree on a joint norm; step it alone, or give it a rule of the engine, such "
             "as \"AdamW\"",
             kCall, i);
      }
      if (!e.at_boundary()) {
        fail(OTR_E_STATE,
             "{}: the next step of engine {} is number {} of {} in its accumulation window, and a "
             "joint step ends a window of each engine: call otr_engine_step for the steps before",
             kCall, i, e.steps_in_window_ + 1, e.config_.accumulation_steps);
      }
    } catch (const Error& error) {
      note(error);
    }
  }
  for (Engine* e : engines) {
    if (trouble) break;
    try {
      const bool again = std::exchange(e->interrupted_, nullptr) != nullptr;
      if (e->reduced_ && !again) e->reduced_->agreed = false;
      if (!e->reduced_ || !e->reduced_->agreed) {
        e->collective(kCall, Again::always, [&] { static_cast<void>(e->reduce_window(true)); });
      }
      e->reduced_->agreed = true;
    } catch (const Error& error) {
      if (e->interrupted_ != nullptr) {
        interrupt();
        throw;
      }
      note(error);
      break;
    } catch (const std::exception& error) {
      note(Error(OTR_E_INTERNAL, error.what()));
      break;
    }
    const Decision& d = e->reduced_->decision;
    if (joint == nullptr || e->control_->rank() == 0) mine.squares += d.norm * d.norm;
    if (d.skip != OTR_SKIP_NONE) mine.skip = 1;
    const double clip = e->config_.optimizer.gradient_clipping;
    if (mine.clip >= 0 && mine.clip != clip) {
      note(Error(OTR_E_CONFIG,
                 format_text("{}: the engines have gradient_clipping {} and {}; a joint norm is "
                             "clipped by one value: set the same",
                             kCall, mine.clip, clip)));
    }
    mine.clip = clip;
  }

  std::vector<JointFacts> all{mine};
  if (joint != nullptr) {
    try {
      all = comm::gather_values(*joint, all, "agree on a joint step");
    } catch (const Error& error) {
      if (error.status() == OTR_E_INTERRUPTED && is_usable(*joint)) interrupt();
      throw;
    }
  }
  if (trouble) throw Error(*trouble);
  double squares = 0, clip = mine.clip;
  bool skip = false;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const JointFacts& facts = all[rank];
    if (facts.status != OTR_OK) {
      fail(OTR_E_ABORTED,
           "{}: rank {} of the joint group could not take part, so nothing was updated: {}", kCall,
           rank, facts.text);
    }
    if (facts.clip >= 0 && facts.clip != clip) {
      fail(OTR_E_CONFIG,
           "{}: rank {} of the joint group has gradient_clipping {}, this one {}; a joint norm is "
           "clipped by one value: set the same",
           kCall, rank, facts.clip, clip);
    }
    squares += facts.squares;
    skip = skip || facts.skip != 0;
  }
  const double norm = std::sqrt(squares);
  for (size_t i = 0; i < engines.size(); ++i) {
    Engine& e = *engines[i];
    Decision d = e.reduced_->decision;
    if (skip && d.skip == OTR_SKIP_NONE) d.skip = OTR_SKIP_JOINT;
    d.norm = norm;
    d.clip = skip ? 1 : optimizer::clip_coefficient(norm, clip);
    try {
      e.collective(kCall, Again::never, [&] { e.finish_step(reports[i], d); });
    } catch (const std::exception& error) {
      // All or nothing: the others have stepped, or wait to, and this one cannot any more.
      const Error joint_failure(
          OTR_E_POISONED, format_text("the joint step failed in engine {}: {}", i, error.what()));
      for (Engine* other : engines) other->poison(joint_failure);
      throw;
    }
  }
}

}  // namespace outrigger::engine
