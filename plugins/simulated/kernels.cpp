// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/kernels.h"

#include <vector>

#include "kernels/cuda/on_lanes.h"
#include "plugins/simulated/located.h"

namespace outrigger::simulated {

namespace on_lanes = kernels::cuda::on_lanes;
using kernels::cuda::Decided;
using plugins::element_of;
using plugins::Use;
using plugins::written;

namespace {

// One piece, with memory as the device sees it.
struct Piece {
  kernels::Update update;
  Use use;
  float* direction = nullptr;
  otr_plugin_norm* norms = nullptr;
  Decided* decided = nullptr;
};

Piece piece_of(Memories& memories, const otr_plugin_update& given) {
  const Use use = plugins::use_of(given);
  Piece piece{memories.located(plugins::update_of(given), use), use};
  if (use == Use::muon_direction) {
    piece.direction = memories.writes(
        given.direction, static_cast<size_t>(given.count) * sizeof(float), "the direction");
  }
  piece.norms = given.norms;
  if (given.decision == nullptr) return piece;
  piece.decided = memories.writes(plugins::decided_of(given.decision), sizeof(Decided),
                                  "the update's decision");
  return piece;
}

void run(const Piece& piece, otr_plugin_update_count* total) {
  if (piece.use == Use::muon_direction) {
    on_lanes::muon_direction(piece.update, piece.direction);
  } else if (piece.use == Use::lamb_norms) {
    kernels::NormSum weights, directions;
    on_lanes::lamb_norms(piece.update, weights, directions);
    piece.norms[0] = written(weights, -1);
    piece.norms[1] = written(directions, -1);
  } else if (piece.decided != nullptr) {
    on_lanes::update(piece.update, *piece.decided);
  } else {
    const kernels::UpdateCount count = on_lanes::update(piece.update);
    if (total == nullptr) return;
    total->updates += count.updates;
    total->vanished += count.vanished;
  }
}

}  // namespace

void convert(Device& device, const otr_plugin_convert* list, int64_t count, uint64_t stream) {
  Memories memories(device);
  std::vector<kernels::cuda::Conversion> all;
  for (int64_t i = 0; i < count; ++i) {
    const otr_plugin_convert c = element_of(list, i);
    if (c.count > 0) all.push_back(memories.located(plugins::conversion_of(c)));
  }
  if (all.empty()) return;
  device.launch(stream, "a conversion", memories.touches(), [all = std::move(all)] {
    for (const kernels::cuda::Conversion& work : all) on_lanes::convert(work);
  });
}

void fold(Device& device, const otr_plugin_fold& list, uint64_t stream) {
  const otr_plugin_fold given = element_of(&list, 0);
  Memories memories(device);
  std::vector<const void*> sources;
  kernels::Fold f = memories.located(plugins::fold_of(given), sources);
  if (given.sum != nullptr) {
    kernels::cuda::SumBlock* const sum =
        memories.writes(plugins::sum_of(given), OTR_PLUGIN_SUM_BYTES, "fold's squares");
    device.launch(stream, "a fold", memories.touches(),
                  [f, sources = std::move(sources), sum]() mutable {
                    f.sources = sources.data();
                    on_lanes::fold(f, *sum);
                  });
    return;
  }
  otr_plugin_norm* out = given.norm;
  device.launch(stream, "a fold", memories.touches(),
                [f, sources = std::move(sources), out]() mutable {
                  kernels::NormSum norm;
                  f.sources = sources.data();
                  f.norm = &norm;
                  const kernels::Origin origin = on_lanes::fold(f);
                  if (out != nullptr) *out = written(norm, origin.rank);
                });
}

void update(Device& device, const otr_plugin_update* list, int64_t count,
            otr_plugin_update_count* host_total, uint64_t stream) {
  Memories memories(device);
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < count; ++i) pieces.push_back(piece_of(memories, element_of(list, i)));
  if (pieces.empty()) return;
  device.launch(stream, "an update", memories.touches(), [pieces = std::move(pieces), host_total] {
    for (const Piece& piece : pieces) run(piece, host_total);
  });
}

void product(Device& device, const otr_plugin_product& list, uint64_t stream) {
  Memories memories(device);
  const kernels::Product p = memories.located(plugins::product_of(element_of(&list, 0)));
  device.launch(stream, "a product", memories.touches(), [p] { on_lanes::product(p); });
}

void decide(Device& device, const otr_plugin_decide& list, uint64_t stream) {
  const otr_plugin_decide given = element_of(&list, 0);
  Memories memories(device);
  const auto* const sums =
      memories.reads(static_cast<const unsigned char*>(given.sums),
                     static_cast<size_t>(given.count) * OTR_PLUGIN_SUM_BYTES, "decide's sums");
  Decided* const out =
      memories.writes(plugins::decided_of(given.decision), sizeof(Decided), "decide's decision");
  const kernels::cuda::Decide how = plugins::decide_of(given);
  device.launch(stream, "a decision", memories.touches(), [how, sums, count = given.count, out] {
    on_lanes::decide(how, sums, OTR_PLUGIN_SUM_BYTES, count, *out);
  });
}

}  // namespace outrigger::simulated
