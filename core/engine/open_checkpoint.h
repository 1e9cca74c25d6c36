// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is looked at without an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/checkpoint/decoder.h"
#include "core/checkpoint/export.h"
#include "core/checkpoint/source.h"

namespace outrigger::engine {

// JSON, of otr_checkpoint_list.
[[nodiscard]] std::string list_checkpoints(const std::string& directory);

// Any thread.
class OpenCheckpoint {
 public:
  // tag empty: the latest.
  OpenCheckpoint(const std::string& directory, const std::string& tag);
  OpenCheckpoint(const checkpoint::Folder& parent, const std::string& tag);

  [[nodiscard]] std::string describe();  // JSON, of otr_checkpoint_describe
  [[nodiscard]] std::vector<std::byte> part(const std::string& name, int32_t rank);
  void verify();
  // value: OTR_VALUE_, not of a gradient.
  void read(const std::string& name, int32_t value, int64_t first, std::span<float> out);
  void export_to(const std::string& path, const checkpoint::ExportOptions& options,
                 checkpoint::Files& files = checkpoint::posix_files());

 private:
  [[nodiscard]] int64_t parameter_named(const std::string& name) const;

  const std::string tag_;
  const checkpoint::Manifest manifest_;
  std::unordered_map<std::string_view, int64_t> parameters_;
  std::mutex mutex_;
  checkpoint::Source source_;    // guarded by mutex_
  checkpoint::Decoder decoder_;  // guarded by mutex_
};

}  // namespace outrigger::engine
