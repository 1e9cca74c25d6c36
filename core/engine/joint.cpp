// SPDX-License-Identifier: Apache-2.0
// Several engines step as one: every engine's phase 1, one decision over all of them, every
// engine's phase 2. A failure before phase 2 leaves all parameters as they were.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/verdict.h"
#include "core/engine/engine.h"
#include "core/optimizer/exact_sum.h"
#include "core/optimizer/rule.h"

namespace outrigger::engine {
namespace {

// What one rank knows of the engines it has; merged, what all know.
struct JointFacts {
  optimizer::ExactSum squares;  // of the engines' norms; in a joint group each counts on its rank 0
  comm::Compared<double> clip{};  // gradient_clipping
  int32_t has_engines = 0;        // so that there is a clip
  int32_t skip = 0;               // one of the engines skips
  comm::FirstVerdict trouble;     // of the first rank that could not take part
};

void merge_joint(JointFacts& into, const JointFacts& from) {
  into.squares.add(from.squares);
  if (into.has_engines == 0) {
    into.clip = from.clip;
    into.has_engines = from.has_engines;
  } else if (from.has_engines != 0) {
    comm::merge(into.clip, from.clip);
  }
  into.skip |= from.skip;
  comm::merge_first(into.trouble, from.trouble);
}

}  // namespace

void Engine::step_many(std::span<Engine* const> engines, comm::Group* joint,
                       std::span<otr_step_report> reports) {
  constexpr const char* kCall = "otr_step_many";
  const int32_t rank = joint != nullptr ? joint->rank() : 0;
  JointFacts facts;
  std::optional<Error> trouble;  // the first here, whole; the others get its beginning
  const auto note = [&](const Error& error) {
    if (trouble) return;
    trouble = error;
    facts.trouble.set(rank, error.status(), error.what());
  };
  // Made again, the call goes on with the first engine that has not agreed.
  const auto interrupt = [&] {
    for (Engine* e : engines) e->health_.set_interrupted(kCall);
  };
  // Whoever cannot take part tells the others instead of leaving them waiting.
  for (size_t i = 0; i < engines.size(); ++i) {
    Engine& e = *engines[i];
    try {
      if (std::count(engines.begin(), engines.end(), &e) > 1) {
        fail(OTR_E_ARGUMENT, "{}: an engine is given twice", kCall);
      }
      e.require_step(kCall);
      e.hear();
      if (e.declared_.config.optimizer.host) {
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
             kCall, i, e.window_->steps() + 1, e.declared_.config.accumulation_steps);
      }
    } catch (const Error& error) {
      note(error);
    }
  }
  for (Engine* e : engines) {
    if (trouble) break;
    try {
      const bool again = e->health_.interrupted() != nullptr;
      e->health_.set_interrupted(nullptr);
      if (!again) e->window_->set_agreed(false);
      if (!e->window_->has_agreed()) {
        e->health_.collective(kCall, Again::always,
                              [&] { static_cast<void>(e->window_->reduce(true)); });
      }
      e->window_->set_agreed(true);
    } catch (const Error& error) {
      if (e->health_.interrupted() != nullptr) {
        interrupt();
        throw;
      }
      note(error);
      break;
    } catch (const std::exception& error) {
      note(Error(OTR_E_INTERNAL, error.what()));
      break;
    }
    const Decision& d = *e->window_->decision();
    if (joint == nullptr || e->control_->rank() == 0) facts.squares.add(d.norm * d.norm);
    if (d.skip != OTR_SKIP_NONE) facts.skip = 1;
    const double clip = e->declared_.config.optimizer.gradient_clipping;
    if (facts.has_engines != 0 && facts.clip.first != clip) {
      note(Error(OTR_E_CONFIG,
                 format_text("{}: the engines have gradient_clipping {} and {}; a joint norm is "
                             "clipped by one value: set the same",
                             kCall, facts.clip.first, clip)));
    }
    facts.clip = {clip, clip, rank};
    facts.has_engines = 1;
  }

  if (joint != nullptr) {
    try {
      comm::combine_value(*joint, facts, merge_joint, "agree on a joint step");
    } catch (const Error& error) {
      if (error.status() == OTR_E_INTERRUPTED && is_usable(*joint)) interrupt();
      throw;
    }
  }
  if (trouble) throw Error(*trouble);
  if (facts.trouble.rank >= 0) {
    fail(OTR_E_ABORTED,
         "{}: rank {} of the joint group could not take part, so nothing was updated: {}", kCall,
         facts.trouble.rank, std::string_view(facts.trouble.verdict.text));
  }
  if (facts.clip.rank >= 0) {
    fail(OTR_E_CONFIG,
         "{}: rank {} of the joint group has gradient_clipping {}, rank {} has {}; a joint norm is "
         "clipped by one value: set the same",
         kCall, facts.clip.lowest, facts.clip.first, facts.clip.rank, facts.clip.other);
  }
  const bool skip = facts.skip != 0;
  const double norm = std::sqrt(facts.squares.value());
  for (size_t i = 0; i < engines.size(); ++i) {
    Engine& e = *engines[i];
    Decision d = *e.window_->decision();
    if (skip && d.skip == OTR_SKIP_NONE) d.skip = OTR_SKIP_JOINT;
    d.norm = norm;
    d.clip = skip ? 1 : optimizer::clip_coefficient(norm, facts.clip.first);
    try {
      e.health_.collective(kCall, Again::never, [&] { e.finish_step(reports[i], d); });
    } catch (const std::exception& error) {
      // All or nothing: the others have stepped, or wait to, and this one cannot any more.
      const Error joint_failure(
          OTR_E_POISONED, format_text("the joint step failed in engine {}: {}", i, error.what()));
      for (Engine* other : engines) other->health_.poison(joint_failure);
      throw;
    }
  }
}

}  // namespace outrigger::engine
