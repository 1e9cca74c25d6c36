// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is looked at without an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/checkpoint/source.h"

namespace outrigger::engine {

// Any thread.
class OpenCheckpoint {
 public:
  // tag empty: the latest.
  OpenCheckpoint(const std::string& directory, const std::string& tag);

  [[nodiscard]] std::string describe();  // JSON, of otr_checkpoint_describe
  [[nodiscard]] std::vector<std::byte> part(const std::string& name, int32_t rank);
  void verify();

 private:
  OpenCheckpoint(const checkpoint::Folder& parent, const std::string& tag);

  const std::string tag_;
  const checkpoint::Manifest manifest_;
  std::mutex mutex_;
  checkpoint::Source source_;  // guarded by mutex_
};

}  // namespace outrigger::engine
