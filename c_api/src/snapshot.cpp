// SPDX-License-Identifier: Apache-2.0
// Snapshots in memory.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "c_api/src/checkpoint_arguments.h"
#include "c_api/src/handles.h"
#include "c_api/src/structs.h"

using namespace outrigger;
using namespace outrigger::c_api;

int32_t otr_snapshot_options_init(otr_snapshot_options* options, size_t size) noexcept {
  return init_struct(options, size, snapshot_defaults(), "options");
}

int32_t otr_snapshot_create(otr_snapshot** out_snapshot) noexcept {
  return guard([&] {
    required(out_snapshot, "out_snapshot") = nullptr;
    *out_snapshot = new otr_snapshot(std::make_shared<engine::RankCopies>());
  });
}

void otr_snapshot_destroy(otr_snapshot* snapshot) noexcept { destroy(snapshot); }

int32_t otr_engine_snapshot(otr_engine* engine, otr_snapshot* snapshot,
                            const otr_snapshot_options* options) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    const otr_snapshot_options read = read_struct(options, snapshot_defaults(), "snapshot_options");
    e.snapshot(*get(snapshot, "snapshot"),
               {parts_of(read.parts, read.part_count, "snapshot_options"), read.replicas});
  });
}

int32_t otr_engine_restore(otr_engine* engine, otr_snapshot* const* snapshots,
                           int64_t count) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    required_count(count, snapshots, "snapshots");
    constexpr size_t kMost = engine::RankCopies::kMostGiven;
    if (count > static_cast<int64_t>(kMost)) {
      fail(OTR_E_ARGUMENT, "{} snapshots; at most {} are looked at", count, kMost);
    }
    std::vector<engine::RankCopies*> all;
    for (int64_t i = 0; i < count; ++i) {
      all.push_back(get(snapshots[i], "snapshot").get());
      if (std::ranges::count(all, all.back()) > 1) {
        fail(OTR_E_ARGUMENT, "snapshot {} is given twice", i);
      }
    }
    e.restore(all);
  });
}

int32_t otr_snapshot_get_info(const otr_snapshot* snapshot, otr_snapshot_info* out_info) noexcept {
  return guard([&] {
    const engine::RankCopies& copies = *get(snapshot, "snapshot");
    fill_output(&required(out_info, "out_info"), "out_info", [&](otr_snapshot_info& full) {
      const bool whole = copies.moment().id != 0;
      full.rank = whole ? copies.own_rank() : -1;
      full.copies = whole ? static_cast<int32_t>(copies.copies().size()) : 0;
      full.world_size = copies.moment().world;
      full.micro_steps = copies.moment().micro_steps;
      full.bytes = copies.bytes();
    });
  });
}

int32_t otr_snapshot_part(const otr_snapshot* snapshot, const char* name, void* buffer,
                          size_t* inout_size) noexcept {
  return guard([&] {
    give_bytes(get(snapshot, "snapshot")->part(&required(name, "name")), buffer, inout_size);
  });
}
