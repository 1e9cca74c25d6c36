// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint.
#include <xxhash.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/engine/checkpoints.h"
#include "outrigger.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::Manifest;
using kernels::Format;

namespace {

constexpr const char* kSaveCall = "otr_engine_save";

}  // namespace

Manifest Checkpoints::manifest() const {
  Manifest manifest;
  manifest.library = OTR_VERSION_STRING;
  manifest.progress = to_json(progress_of(declared_, run_, committed_.groups()));
  manifest.configuration = declared_.config.effective_json;
  for (int64_t i = 0; i < declared_.model.size(); ++i) {
    const layout::Parameter& p = declared_.model.at(i);
    const auto group = declared_.model.groups().at(static_cast<size_t>(p.group));
    manifest.parameters.push_back(
        {p.name, {p.shape.begin(), p.shape.end()}, p.trainable, p.root, group});
  }
  const config::OptimizerConfig& optimizer = declared_.config.optimizer;
  const auto set = [&](Kept kept, Format format) {
    manifest.formats.at(static_cast<size_t>(kept)) = format;
  };
  set(Kept::master, committed_.states->format(State::master));
  if (optimizer.keeps_exp_avg()) set(Kept::exp_avg, committed_.states->format(State::exp_avg));
  if (optimizer.keeps_exp_avg_sq()) {
    set(Kept::exp_avg_sq, committed_.states->format(State::exp_avg_sq));
  }
  set(Kept::published, committed_.published.format());
  return manifest;
}

void Checkpoints::require_not_busy(const char* call, bool refuse) {
  if (!saver_) return;
  if (refuse) {
    bool busy = saver_->is_under_way();
    health_.collective(call, Again::never, [&] { busy = comm::any(control_, busy, call); });
    if (busy) {
      fail(OTR_E_STATE,
           "{}: the asynchronous save of checkpoint \"{}\" is under way: wait for it with "
           "otr_engine_wait_save, or leave when_busy at OTR_SAVE_WAIT",
           call, printable(saver_->status().tag));
    }
  }
  saver_->require_success_everywhere(health_, control_, call, Again::never);
}

void Checkpoints::require_saver(Together& ranks) {
  if (saver_) return;
  std::unique_ptr<comm::Communicator> group;
  ranks.collective([&] { group = control_.duplicate("asynchronous saves"); });
  std::unique_ptr<Saver> made;
  ranks.run([&] {
    made = std::make_unique<Saver>(declared_, *committed_.states, std::move(group),
                                   committed_.plan.snapshots);
  });
  const std::unique_lock lock(declared_.mutex);  // an abort from another thread
  saver_ = std::move(made);
}

void Checkpoints::save(const std::string& directory, const std::string& tag,
                       const SaveOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  // Each rank for itself: the saves go on without the callers.
  if (saver_ && !options.refuse_when_busy) saver_->wait(-1, kSaveCall);
  uint64_t arguments = XXH3_64bits(tag.data(), tag.size());
  for (const uint64_t option :
       {static_cast<uint64_t>(options.keep_last), uint64_t{options.replace},
        uint64_t{options.asynchronous}, uint64_t{options.refuse_when_busy}}) {
    arguments = arguments * 31 + option;
  }
  agree_on(kSaveCall, arguments);
  require_not_busy(kSaveCall, options.refuse_when_busy);
  Together ranks = together(kSaveCall);
  if (options.asynchronous) require_saver(ranks);
  SaveJob job(ranks, files_, {directory, tag, options.keep_last, options.replace}, manifest());
  const int64_t rank = control_.rank();
  Contents contents(declared_, committed_, job.manifest(), options.parts);
  if (!options.asynchronous) {
    job.finish(ranks, [&](Folder& folder) {
      return write_file(folder, contents, rank, declared_.ledger, [&](int64_t) { ranks.tick(); });
    });
    return;
  }
  std::shared_ptr<Snapshot> snapshot;
  ranks.run([&] {
    snapshot = std::make_shared<Snapshot>(std::move(contents), declared_.ledger, saver_->room());
  });
  saver_->begin(std::move(job), std::move(snapshot), began);
}

}  // namespace outrigger::engine
