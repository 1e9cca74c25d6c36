// SPDX-License-Identifier: Apache-2.0
// Checkpoints and snapshots of shards, which have no engine: each shard is a parameter of its own,
// the progress is the optimizer's. What an engine saved of parameters with their names and counts
// is loaded, and the other way round.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/assembly.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/source.h"
#include "core/engine/contents.h"
#include "core/engine/progress.h"
#include "core/engine/rank_copies.h"
#include "core/engine/save_job.h"
#include "core/optimizer/optimizer.h"

namespace outrigger::engine {

// For one call of the optimizer's.
class ShardCheckpoints {
 public:
  // Gives shards their states, as a step would. call: for messages. Throws OTR_E_DUPLICATE where
  // two have one name.
  ShardCheckpoints(optimizer::Optimizer& optimizer, std::vector<optimizer::Shard*> shards,
                   const char* call, checkpoint::Files& files = checkpoint::posix_files());

  void save(const SaveTarget& target, const std::vector<HostPart>& parts);
  struct LoadOptions {
    bool weights_only = false;  // no moments, no progress
    bool strict = true;         // the same names here and there
  };
  // tag empty: the latest. Changes nothing unless all could be read.
  void load(const std::string& directory, const std::string& tag, const LoadOptions& options);

  void snapshot(RankCopies& into, const std::vector<HostPart>& parts);
  void restore(const RankCopies& from);

 private:
  using Kept = checkpoint::Kept;
  // A value of a shard.
  struct Value {
    size_t shard;
    Kept kept;
    optimizer::StoredValue stored;
    int64_t count;  // elements
  };
  [[nodiscard]] std::vector<Value> values() const;  // of all shards, each with its moments
  [[nodiscard]] const std::string& name_of(const Value& value) const { return names_[value.shard]; }
  [[nodiscard]] Progress progress() const;
  // What a progress makes of the optimizer; a failure names the call.
  [[nodiscard]] config::OptimizerConfig config_of(const Progress& progress) const;
  void resume(const Progress& progress, config::OptimizerConfig config,
              const std::vector<std::string>& names);

  [[nodiscard]] checkpoint::AssemblyOptions options_of(const std::vector<Value>& values) const;
  // Where a value comes from in a checkpoint.
  struct Wanted {
    Value value;
    int64_t saved;
    Kept there;
  };
  [[nodiscard]] std::vector<int64_t> match(const checkpoint::Manifest& manifest, bool strict) const;
  [[nodiscard]] std::vector<Wanted> wanted(const checkpoint::Manifest& manifest,
                                           const checkpoint::Source& source,
                                           const std::vector<int64_t>& matched,
                                           bool weights_only) const;
  // One of its planes, where it lies.
  [[nodiscard]] static std::span<std::byte> plane_of(const Value& value, size_t plane);
  static void put(const Value& to, int64_t first, int64_t count, kernels::Format from,
                  std::span<const std::vector<std::byte>> planes);
  void read_all(const std::vector<Wanted>& all, const checkpoint::Manifest& manifest,
                checkpoint::Source& source, bool takes) const;
  // What a snapshot is of.
  [[nodiscard]] std::string layout_of(const std::vector<Value>& values) const;

  optimizer::Optimizer& optimizer_;
  const std::vector<optimizer::Shard*> shards_;
  std::vector<std::string> names_;  // in a checkpoint
  const char* const call_;
  checkpoint::Files& files_;
};

}  // namespace outrigger::engine
