// SPDX-License-Identifier: Apache-2.0
// An engine's calls on checkpoints.
#include "core/engine/checkpoints.h"

#include "core/engine/engine.h"

namespace outrigger::engine {

Checkpoints Engine::checkpoints(checkpoint::Files& files) {
  return {declared_, *committed_, run_, *values_, health_, files, saver_};
}

void Engine::save(const std::string& directory, const std::string& tag, const SaveOptions& options,
                  checkpoint::Files& files) {
  require_between_windows("otr_engine_save");
  require_here(kAllOfIt, "otr_engine_save");
  check();
  const observe::Span span(&declared_.timeline, observe::Phase::save, tag);
  checkpoints(files).save(directory, tag, options);
}

void Engine::load(const std::string& directory, const std::string& tag, const LoadOptions& options,
                  checkpoint::Files& files) {
  require_between_windows("otr_engine_load");
  require_here(kAllOfIt, "otr_engine_load");
  check();
  const observe::Span span(&declared_.timeline, observe::Phase::load, tag);
  checkpoints(files).load(directory, tag, options);
}

void Engine::snapshot(RankCopies& into, const SnapshotOptions& options) {
  require_between_windows("otr_engine_snapshot");
  require_here(kAllOfIt, "otr_engine_snapshot");
  check();
  checkpoints(checkpoint::posix_files()).snapshot(into, options);
}

void Engine::restore(std::span<RankCopies* const> snapshots) {
  require_between_windows("otr_engine_restore");
  require_here(kAllOfIt, "otr_engine_restore");
  check();
  checkpoints(checkpoint::posix_files()).restore(snapshots);
}

Saver::Status Engine::wait_save(double seconds) {
  if (!saver_) return {};
  if (saver_->wait(seconds, "otr_engine_wait_save")) saver_->require_success();
  return saver_->status();
}

}  // namespace outrigger::engine
