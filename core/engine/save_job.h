// SPDX-License-Identifier: Apache-2.0
// A save over all ranks, in two halves: it begins where all agree on it, and ends when the whole
// appears. Between them each rank writes its file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/engine/rank_file.h"
#include "core/engine/together.h"

namespace outrigger::engine {

struct SaveTarget {
  std::string directory, tag;
  int32_t keep_last = 0;  // complete checkpoints that stay, the latest ones; 0: all
  bool replace = false;   // the one of that tag
};

// Removes complete checkpoints but the `count` of them that had made most steps; 0: none.
void keep_latest(checkpoint::Lock& lock, int32_t count);

class SaveJob {
 public:
  // Collective. Takes the folder's lock on rank 0, until the end of this. manifest: but for its id
  // and what is known at the end.
  SaveJob(Together& together, checkpoint::Files& files, SaveTarget target,
          checkpoint::Manifest manifest);

  [[nodiscard]] const SaveTarget& target() const { return target_; }
  [[nodiscard]] const checkpoint::Manifest& manifest() const { return manifest_; }

  // Collective. write: this rank's file into the folder.
  using Write = std::function<RankFile(checkpoint::Folder& folder)>;
  void finish(Together& together, const Write& write);
  // Gives the lock back, and removes what did not become a checkpoint.
  void release() noexcept;

 private:
  [[nodiscard]] checkpoint::Index gather_index(Together& together, const RankFile& mine);
  void publish(const checkpoint::Index& index);  // on rank 0

  const SaveTarget target_;
  checkpoint::Manifest manifest_;
  // Where the files go: open from the call on, whatever a relative path means later.
  std::optional<checkpoint::Folder> folder_;
  // Of rank 0.
  std::unique_ptr<checkpoint::Lock> lock_;
  std::unique_ptr<checkpoint::Staging> staging_;
};

}  // namespace outrigger::engine
