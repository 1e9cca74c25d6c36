// SPDX-License-Identifier: Apache-2.0
#include "core/engine/plan.h"

#include <algorithm>

#include "core/engine/gather_pieces.h"
#include "core/engine/saved_bytes.h"

namespace outrigger::engine {
namespace {

constexpr int64_t kUpdateElements = int64_t{1} << 20;  // of an offloaded update at a time
constexpr int64_t kSlots = 3;  // one is filled, one goes up, and one waits for its turn

Home home_of(const config::EngineConfig& config, const Machine& machine) {
  if (config.stage == 0) return Home::copy;
  const bool one_memory = machine.shape.shares_memory && !machine.on_device;
  if (one_memory && config.share_parameters) return Home::shared;
  return config.stage == 3 ? Home::slices : Home::replica;
}

}  // namespace

int64_t bucket_elements(const layout::Model& model, const config::EngineConfig& config,
                        int32_t slices) {
  constexpr int64_t kMessage = 32768, kPart = 16;
  if (config.bucket_was_set) return config.bucket_elements;
  int64_t trainable = 0;
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    if (p.root == id && p.trainable) trainable += p.count;
  }
  const int64_t most = trainable / kPart / kernels::kLeaf * kernels::kLeaf;
  return std::max(config.bucket_elements, std::min(slices * kMessage, most));
}

Plan::Plan(const layout::Model& model, const layout::Layout& layout,
           const config::EngineConfig& config, const Machine& machine)
    : front(machine.on_device ? Space::device : Space::host),
      back(machine.on_device && !config.offload_optimizer ? Space::device : Space::host),
      separate_master(config.optimizer.master.format != config.compute || offloaded()),
      home(home_of(config, machine)),
      bucket_buffers(
          std::max<uint64_t>(1, std::min<uint64_t>(static_cast<uint64_t>(config.bucket_buffers),
                                                   layout.buckets().size()))),
      compute_(config.compute),
      master_format_(config.optimizer.master.format) {
  const int64_t all = layout.flat_elements(), trainable = layout.trainable_elements();
  const int64_t shard = layout.shard_elements(), frozen = all - trainable;
  const comm::Shape& shape = machine.shape;
  const int64_t shown = trainable / shape.published_slices();
  const int64_t elements = home == Home::shared
                               ? shown + (shape.published_slice() == 0 ? frozen : 0)
                           : home == Home::slices ? shown + frozen
                                                  : all;
  published = engine::bytes_of(elements, config.compute);
  shared_published = engine::bytes_of(all, config.compute);
  const int64_t owned = home == Home::copy ? trainable : shard;
  const config::OptimizerConfig& states = config.optimizer;
  if (separate_master) master = engine::bytes_of(owned, states.master.format);
  if (states.keeps_exp_avg()) {
    exp_avg = engine::bytes_of(owned, states.exp_avg.format);
  }
  if (states.keeps_exp_avg_sq()) {
    const bool muon = states.rule == kernels::Rule::muon;
    exp_avg_sq = engine::bytes_of(muon ? place_second_moments(model, layout, shape.slice) : owned,
                                  states.exp_avg_sq.format);
  }
  const bool boundary = config.order == config::Order::boundary;
  accumulators =
      engine::bytes_of(boundary || config.stage == 0 ? trainable : shard, config.accumulator);
  const int64_t largest = layout.largest_bucket();
  if (!boundary) {
    ring = engine::bytes_of(largest * static_cast<int64_t>(bucket_buffers), config.compute);
    if (offloaded()) packing = ring;
  }
  const int64_t reduced = engine::bytes_of(largest, boundary ? config.accumulator : config.compute);
  const bool alone = layout.world() == 1;  // no other rank has another slice
  const bool levels = shape.groups > 1;
  const int64_t slice = largest / layout.world();
  const bool exchanges_on_device = back == Space::device && (!alone || levels);
  if (back == Space::host || exchanges_on_device) {
    received = comm::footprint_of(shape, {slice, reduced});
  }
  if (exchanges_on_device) {
    received_on_device = levels ? engine::bytes_of(slice, kernels::Format::float32) : reduced;
    if (levels) received += received_on_device;  // the sum, on the host
    gradient_staging = config.stage == 0
                           ? std::max(reduced, engine::bytes_of(largest, config.accumulator))
                           : reduced;
  }
  if (front == Space::device && home == Home::replica && !alone) {
    const auto runs = std::min<int64_t>(kSlots, static_cast<int64_t>(layout.buckets().size()));
    publish_staging = engine::bytes_of(largest * runs, config.compute);
  }
  if (front == Space::device && home == Home::slices && shape.published_slices() > 1) {
    gather_staging = 2 * Bounce::kBytes;  // at once, and ahead
  }
  if (offloaded() && !states.host) {
    update_elements = std::clamp(owned, kernels::kLeaf, kUpdateElements);
    if (states.master.format != config.compute) {
      update_slots =
          std::clamp<int64_t>((owned + update_elements - 1) / update_elements, 1, kSlots);
      update_staging = engine::bytes_of(update_elements * update_slots, config.compute);
    }
  }
  if (back == Space::device && (!alone || levels)) {
    matrix_staging = engine::bytes_of(matrices.elements, kernels::Format::float32);
  }
  // Windows are touched when they are made, private blocks later.
  published_at_commit = windowed() || (home == Home::slices && shape.parts() > 1);
  if (front == Space::host && !published_at_commit) untouched += published;
  if (back == Space::host) untouched += master + exp_avg + exp_avg_sq;
  if (back == Space::host && !boundary && config.stage > 0) untouched += accumulators;
  if (config.asynchronous_saves) {
    snapshots = snapshot_room(bytes_to_save(model, layout, config, shape));
  }
  untouched += received + update_staging + gather_staging + matrix_staging + snapshots;
  if (back == Space::host) untouched += matrices.bytes();
}

int64_t Plan::place_second_moments(const layout::Model& model, const layout::Layout& layout,
                                   int32_t rank) {
  second_moments.resize(static_cast<size_t>(model.size()));
  int64_t elements = 0;
  for (const layout::Piece& piece : pieces(model, layout, rank)) {
    if (model.at(piece.parameter).matrix) continue;
    second_moments[static_cast<size_t>(piece.parameter)] = elements - piece.first;
    elements += kernels::in_leaves(piece.count);
  }
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    if (p.root == id && p.trainable && p.matrix) matrices.include(rows_of(p), columns_of(p));
  }
  return elements;
}

int64_t Plan::host_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < memory::kPurposes; ++i) {
    bytes += bytes_of(static_cast<memory::Purpose>(i), Space::host);
  }
  return bytes;
}

int64_t Plan::touched_by(const layout::Model& model, int64_t root,
                         const layout::Piece* piece) const {
  const bool publishes = front == Space::host && !published_at_commit;
  const layout::Parameter& p = model.at(root);
  if (!p.trainable) return publishes ? engine::bytes_of(p.count, compute_) : 0;
  if (piece == nullptr) return 0;
  return (publishes ? engine::bytes_of(piece->count, compute_) : 0) +
         (separate_master && back == Space::host ? engine::bytes_of(piece->count, master_format_)
                                                 : 0);
}

int64_t Plan::bytes_of(memory::Purpose purpose, Space space) const {
  const int64_t in_front = space == front ? 1 : 0, in_back = space == back ? 1 : 0;
  switch (purpose) {
    case memory::Purpose::published:
      return in_front * published;
    case memory::Purpose::master:
      return in_back * master;
    case memory::Purpose::exp_avg:
      return in_back * exp_avg;
    case memory::Purpose::exp_avg_sq:
      return in_back * exp_avg_sq;
    case memory::Purpose::accumulators:
      return in_back * accumulators;
    case memory::Purpose::buckets:
      return in_back * ring + (space == Space::host
                                   ? received + gradient_staging + publish_staging +
                                         update_staging + gather_staging + matrix_staging
                                   : received_on_device + packing);
    case memory::Purpose::scratch:  // other scratch comes and goes
      return in_back * matrices.bytes();
    case memory::Purpose::snapshots:
      return space == Space::host ? snapshots : 0;
    default:
      return 0;  // comes and goes
  }
}

}  // namespace outrigger::engine
