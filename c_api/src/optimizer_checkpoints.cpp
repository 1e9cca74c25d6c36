// SPDX-License-Identifier: Apache-2.0
// Checkpoints and snapshots of shards.
#include <string>
#include <vector>

#include "c_api/src/checkpoint_arguments.h"
#include "c_api/src/handles.h"
#include "c_api/src/structs.h"
#include "core/engine/shard_checkpoints.h"

using namespace outrigger;         // NOLINT(google-build-using-namespace): as in optimizer.cpp
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

namespace {

engine::ShardCheckpoints checkpoints_of(otr_optimizer* optimizer, otr_shard* const* shards,
                                        int64_t count, const char* call) {
  return {*get(optimizer, "optimizer"), shards_of(shards, count), call};
}

}  // namespace

int32_t otr_optimizer_save(otr_optimizer* optimizer, otr_shard* const* shards, int64_t count,
                           const char* directory, const char* tag,
                           const otr_save_options* options) noexcept {
  return guard([&] {
    const engine::SaveOptions read =
        options_of(read_struct(options, save_defaults(), "save_options"));
    if (read.asynchronous) {
      fail(OTR_E_UNSUPPORTED,
           "otr_optimizer_save: save_options.asynchronous = 1 is an engine's; leave it at 0, and "
           "call otr_optimizer_snapshot for a copy that takes no disk");
    }
    const engine::SaveTarget target{&required(directory, "directory"), &required(tag, "tag"),
                                    read.keep_last, read.replace};
    checkpoints_of(optimizer, shards, count, "otr_optimizer_save").save(target, read.parts);
  });
}

int32_t otr_optimizer_load(otr_optimizer* optimizer, otr_shard* const* shards, int64_t count,
                           const char* directory, const char* tag,
                           const otr_load_options* options) noexcept {
  return guard([&] {
    const otr_load_options o = read_struct(options, load_defaults(), "load_options");
    const engine::ShardCheckpoints::LoadOptions read{
        flag(o.weights_only, "load_options.weights_only"), flag(o.strict, "load_options.strict")};
    const char* const given = o.include != nullptr   ? "include"
                              : o.exclude != nullptr ? "exclude"
                              : o.renamed != nullptr ? "renamed"
                              : o.resized != nullptr ? "resized"
                                                     : nullptr;
    if (given != nullptr) {
      fail(OTR_E_UNSUPPORTED,
           "otr_optimizer_load: load_options.{} is an engine's; give the shards that are to be "
           "loaded, under the names that they have there",
           given);
    }
    if (!read.strict && !read.weights_only) {
      fail(OTR_E_ARGUMENT,
           "load_options.strict = 0 needs weights_only = 1: moments and progress are those of all "
           "shards");
    }
    const std::string folder = &required(directory, "directory");
    checkpoints_of(optimizer, shards, count, "otr_optimizer_load")
        .load(folder, text_or_empty(tag), read);
  });
}

int32_t otr_optimizer_snapshot(otr_optimizer* optimizer, otr_shard* const* shards, int64_t count,
                               otr_snapshot* snapshot,
                               const otr_snapshot_options* options) noexcept {
  return guard([&] {
    const otr_snapshot_options read = read_struct(options, snapshot_defaults(), "snapshot_options");
    if (read.replicas != 0) {
      fail(OTR_E_ARGUMENT,
           "snapshot_options.replicas = {}; legal for shards, which have no other ranks, is 0",
           read.replicas);
    }
    engine::RankCopies& into = *get(snapshot, "snapshot");
    checkpoints_of(optimizer, shards, count, "otr_optimizer_snapshot")
        .snapshot(into, parts_of(read.parts, read.part_count, "snapshot_options"));
  });
}

int32_t otr_optimizer_restore(otr_optimizer* optimizer, otr_shard* const* shards, int64_t count,
                              const otr_snapshot* snapshot) noexcept {
  return guard([&] {
    const engine::RankCopies& from = *get(snapshot, "snapshot");
    checkpoints_of(optimizer, shards, count, "otr_optimizer_restore").restore(from);
  });
}
