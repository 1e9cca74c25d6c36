// SPDX-License-Identifier: Apache-2.0
// Hyperparameters, frozen flags, and the progress of a run: read and set between two windows.
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include <xxhash.h>

#include "core/comm/combine.h"
#include "core/comm/verdict.h"
#include "core/engine/engine.h"

namespace outrigger::engine {
namespace {

constexpr const char* kSetProgress = "otr_engine_set_progress";

}  // namespace

// Gradients of a half-finished window are no part of it.
void Engine::require_between_windows(const char* call) {
  require(State::committed, call);
  hear();
  window_->require_no_pass(call);
  if (window_->is_empty()) return;
  fail(OTR_E_STATE,
       "{}: {} passes of this window were taken already, and gradients are no part of a progress: "
       "end the window with otr_engine_step, or drop it with otr_engine_discard",
       call, window_->passes());
}

Progress Engine::progress() {
  require_between_windows("otr_engine_get_progress");
  return progress_of(declared_, run_, committed_->groups());
}

// Whoever cannot set it tells the others instead of leaving them waiting.
void Engine::agree_on_progress(std::string_view json, const std::optional<Error>& trouble) {
  struct Facts {
    comm::Compared<uint64_t> text;
    comm::FirstVerdict verdict;
  };
  const uint64_t hash = XXH3_64bits(json.data(), json.size());
  const int32_t rank = control_->rank();
  Facts facts{{hash, hash, rank}, {}};
  if (trouble) facts.verdict.set(rank, trouble->status(), trouble->what());
  const auto merge = [](Facts& into, const Facts& from) {
    comm::merge(into.text, from.text);
    comm::merge_first(into.verdict, from.verdict);
  };
  health_.collective(
      kSetProgress, Again::at_first,
      [&] { comm::combine_value(*control_, facts, merge, "set the progress"); }, hash);
  if (trouble) throw Error(*trouble);
  if (facts.verdict.rank >= 0) {
    fail(OTR_E_ABORTED, "{}: rank {} could not, so no rank has: {}", kSetProgress,
         facts.verdict.rank, std::string_view(facts.verdict.verdict.text));
  }
  if (facts.text.rank >= 0) {
    fail(OTR_E_MISMATCH, "{}: rank 0 and rank {} set different ones: every rank sets the same text",
         kSetProgress, facts.text.rank);
  }
}

void Engine::set_progress(std::string_view json) {
  require_between_windows(kSetProgress);
  // All that can be refused comes before anything is changed.
  std::optional<Resumed> read;
  std::optional<Error> trouble;
  try {
    read = read_progress(json, declared_, Names(declared_.model));
  } catch (const Error& error) {
    trouble = error;
  }
  agree_on_progress(json, trouble);
  resume(std::move(*read), declared_, run_, committed_->groups());
}

void Engine::set_group_value(const std::string& group, const std::string& name, double value) {
  health_.require("otr_engine_set_group_value");
  declared_.set_group_value(group, name, value);
}

double Engine::group_value(const std::string& group, const std::string& name) {
  if (!health_.is_pending) hear();  // what a schedule gives follows the updates
  return declared_.group_value(group, name, run_.applied_steps);
}

void Engine::watch(const WatchOptions& options) {
  health_.require("otr_engine_watch");
  watch_.add(options);
}

void Engine::set_trainable(int64_t id, bool trainable) {
  health_.require("otr_engine_set_trainable");
  const layout::Parameter& root = model().root(id);
  if (!root.trainable) {
    fail(OTR_E_STATE,
         "parameter \"{}\" was declared frozen and has no master and no states: declare it with "
         "trainable = 1 and freeze it with otr_engine_set_trainable",
         model().at(id).name);
  }
  if (window_ && window_->passes() > 0) {
    fail(OTR_E_STATE,
         "otr_engine_set_trainable: gradients of this window were taken already; call "
         "otr_engine_step first");
  }
  const std::unique_lock lock(declared_.mutex);
  declared_.model.set_frozen(root.root, !trainable);
}

}  // namespace outrigger::engine
