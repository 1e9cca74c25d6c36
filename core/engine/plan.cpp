// SPDX-License-Identifier: Apache-2.0
#include "core/engine/plan.h"

#include <algorithm>
#include <cmath>

#include "core/device/decider.h"
#include "core/engine/gather_pieces.h"
#include "core/engine/saved_bytes.h"

namespace outrigger::engine {
namespace {

constexpr int64_t kUpdateElements = int64_t{1} << 20;  // of an offloaded update at a time
constexpr int64_t kSlots = 3;  // one is filled, one goes up, and one waits for its turn

Home home_of(const config::EngineConfig& config, const Machine& machine) {
  if (config.stage == 0) return Home::copy;
  const bool in_host_memory = !machine.on_device || config.offload_params;
  const bool one_memory = machine.shape.shares_memory && in_host_memory;
  // What ranks show is rounded on its way, the same whether they share memory or not.
  if (one_memory && config.share_parameters && !config.quantised_weights) return Home::shared;
  return config.stage == 3 ? Home::slices : Home::replica;
}

// Nothing of a step's update needs the host: no trust ratio, no matrices, no history of norms, and
// no loss scale that follows.
bool decides_there(const config::EngineConfig& config) {
  const config::OptimizerConfig& optimizer = config.optimizer;
  const bool by_element =
      optimizer.rule != kernels::Rule::lamb && optimizer.rule != kernels::Rule::muon;
  return by_element && !optimizer.host && optimizer.outliers.window == 0 &&
         !config.loss_scaling.dynamic;
}

bool is_trained(const layout::Model& model, int64_t id) {
  return model.at(id).root == id && model.at(id).trainable;
}

}  // namespace

int64_t bucket_elements(const layout::Model& model, const config::EngineConfig& config,
                        int32_t slices) {
  constexpr int64_t kMessage = 32768, kPart = 16;
  if (config.bucket_was_set) return config.bucket_elements;
  int64_t trainable = 0;
  for (int64_t id = 0; id < model.size(); ++id) {
    if (is_trained(model, id)) trainable += model.at(id).count;
  }
  const int64_t most = trainable / kPart / kernels::kLeaf * kernels::kLeaf;
  return std::max(config.bucket_elements, std::min(slices * kMessage, most));
}

int64_t kept_on_device(const layout::Model& model, const config::EngineConfig& config) {
  if (!config.offload_optimizer || config.offload_ratio == 1) return 0;
  int64_t all = 0;
  for (int64_t id = 0; id < model.size(); ++id) {
    if (is_trained(model, id)) all += model.at(id).count;
  }
  const double wanted = (1 - config.offload_ratio) * static_cast<double>(all);
  int64_t kept = 0, best = 0;
  double missed = wanted;
  for (int64_t id = 0; id < model.size(); ++id) {
    if (!is_trained(model, id)) continue;
    kept += model.at(id).count;
    const double off = std::abs(static_cast<double>(kept) - wanted);
    if (off >= missed) continue;
    missed = off;
    best = id + 1;
  }
  return best;
}

Plan::Plan(const layout::Model& model, const layout::Layout& layout,
           const config::EngineConfig& config, const Machine& machine)
    : front(machine.on_device ? Space::device : Space::host),
      published_in(config.offload_params ? Space::host : front),
      home(home_of(config, machine)),
      kept_(layout.apart()),
      compute_(config.compute),
      master_format_(config.optimizer.master.format) {
  const int64_t all = layout.flat_elements(), trainable = layout.trainable_elements();
  const int64_t frozen = all - trainable;
  const comm::Shape& shape = machine.shape;
  const int64_t shown = trainable / shape.published_slices();
  const int64_t elements = home == Home::shared
                               ? shown + (shape.published_slice() == 0 ? frozen : 0)
                           : home == Home::slices ? shown + frozen
                                                  : all;
  published = engine::bytes_of(elements, config.compute);
  shared_published = engine::bytes_of(all, config.compute);
  divide(layout, config);
  const config::OptimizerConfig& states = config.optimizer;
  std::vector<int64_t> second(sides.size());
  for (size_t i = 0; i < sides.size(); ++i) second[i] = sides[i].elements;
  if (states.keeps_exp_avg_sq() && states.rule == kernels::Rule::muon) {
    second = place_second_moments(model, layout, shape.slice);
  }
  for (size_t i = 0; i < sides.size(); ++i) {
    plan_states(sides[i], states, second[i]);
    plan_sums(sides[i], layout, config, shape);
  }
  const bool alone = layout.world() == 1;  // no other rank has another slice
  const bool gathers = home == Home::slices && shape.published_slices() > 1;
  if (gathers && (front == Space::device || config.quantised_weights))
    gather_staging = 2 * Bounce::kBytes;  // at once, and ahead
  if (uploads_updates() && !states.host) {
    const int64_t owned = sides.back().elements;
    update_elements = std::clamp(owned, kernels::kLeaf, kUpdateElements);
    if (states.master.format != config.compute) {
      update_slots =
          std::clamp<int64_t>((owned + update_elements - 1) / update_elements, 1, kSlots);
      update_staging = engine::bytes_of(update_elements * update_slots, config.compute);
    }
  }
  if (front == Space::device && home == Home::replica && !alone &&
      config.backend == config::Backend::host) {
    const int64_t slots = std::min<int64_t>(kSlots, std::ssize(layout.buckets()));
    const int64_t runs = engine::bytes_of(layout.largest_bucket() * slots, config.compute);
    publish_staging = update_elements > 0 ? Bounce::kBytes : runs;
  }
  for (Side& side : sides) {
    if (side.back != Space::device || (alone && shape.groups == 1)) continue;
    side.matrix_staging = engine::bytes_of(side.matrices.elements, kernels::Format::float32);
  }
  if (front == Space::device && !offloaded() && alone && shape.groups == 1 &&
      decides_there(config)) {
    sums = static_cast<int64_t>(layout.buckets().size());
  }
  // Windows are touched when they are made, private blocks later.
  published_at_commit = windowed() || (home == Home::slices && shape.parts() > 1);
  if (published_in == Space::host && !published_at_commit) untouched += published;
  const bool private_sums = config.order != config::Order::boundary && config.stage > 0;
  for (const Side& side : sides) {
    untouched += side.received + side.matrix_staging;
    if (side.back != Space::host) continue;
    untouched += side.matrices.bytes();
    untouched += side.master + side.exp_avg + side.exp_avg_sq;
    if (private_sums) untouched += side.accumulators;
  }
  if (config.asynchronous_saves) {
    snapshots = snapshot_room(bytes_to_save(model, layout, config, shape));
  }
  untouched += update_staging + gather_staging + snapshots + decision_copy();
  untouched += publishes_pieces() ? publish_staging : 0;
}

// Bucket 0 has the parameters declared last; those declared first have the lowest flat offsets.
void Plan::divide(const layout::Layout& layout, const config::EngineConfig& config) {
  const std::vector<layout::Bucket>& buckets = layout.buckets();
  const auto end = static_cast<int64_t>(buckets.size());
  const auto is_kept = [&](const layout::Bucket& b) { return b.parameters.front() < kept_; };
  const int64_t first_kept = std::ranges::find_if(buckets, is_kept) - buckets.begin();
  const auto add = [&](Space back, int64_t from, int64_t to) {
    Side& side = sides.emplace_back(
        Side{.back = back,
             .separate_master = master_format_ != config.compute || published_in != back,
             .begin = from,
             .end = to});
    const int64_t world = layout.world();
    for (int64_t b = from; b < to; ++b) {
      const layout::Bucket& bucket = layout.bucket(b);
      side.elements += home == Home::copy ? bucket.elements : bucket.elements / world;
      side.all += bucket.elements;
      side.largest = std::max(side.largest, bucket.elements);
    }
    if (from < to) {
      side.flat = layout.bucket(to - 1).begin;
      side.shard = home == Home::copy ? side.flat : layout.bucket(to - 1).shard;
    }
    side.bucket_buffers =
        std::clamp<uint64_t>(static_cast<uint64_t>(config.bucket_buffers), 1,
                             std::max<uint64_t>(1, static_cast<uint64_t>(to - from)));
  };
  const bool offloads = front == Space::device && config.offload_optimizer;
  if (first_kept < end) add(Space::device, first_kept, end);
  if (first_kept > 0 || end == 0) add(offloads ? Space::host : front, 0, first_kept);
}

void Plan::plan_states(Side& side, const config::OptimizerConfig& states, int64_t second) {
  if (side.separate_master) side.master = engine::bytes_of(side.elements, states.master.format);
  if (states.keeps_exp_avg()) side.exp_avg = engine::bytes_of(side.elements, states.exp_avg.format);
  if (states.keeps_exp_avg_sq())
    side.exp_avg_sq = engine::bytes_of(second, states.exp_avg_sq.format);
}

void Plan::plan_sums(Side& side, const layout::Layout& layout, const config::EngineConfig& config,
                     const comm::Shape& shape) const {
  const bool boundary = config.order == config::Order::boundary;
  side.accumulators = engine::bytes_of(boundary || config.stage == 0 ? side.all : side.elements,
                                       config.accumulator);
  if (!boundary) {
    side.ring =
        engine::bytes_of(side.largest * static_cast<int64_t>(side.bucket_buffers), config.compute);
    if (side.back != front) side.packing = side.ring;
  }
  const int64_t reduced =
      engine::bytes_of(side.largest, boundary ? config.accumulator : config.compute);
  const bool levels = shape.groups > 1;
  const int64_t slice = side.largest / layout.world();
  const bool exchanges_on_device = side.back == Space::device && (layout.world() > 1 || levels);
  if (exchanges_on_device && config.backend != config::Backend::host) {
    side.received_on_device = config.library_sums ? reduced / layout.world() : reduced;
    return;
  }
  if (side.back == Space::host || exchanges_on_device) {
    side.received = comm::footprint_of(shape, {slice, reduced, config.quantised_gradients});
  }
  if (!exchanges_on_device) return;
  side.received_on_device = levels ? engine::bytes_of(slice, kernels::Format::float32) : reduced;
  if (levels) side.received += side.received_on_device;  // the sum, on the host
  side.gradient_staging =
      config.stage == 0 ? std::max(reduced, engine::bytes_of(side.largest, config.accumulator))
                        : reduced;
}

std::vector<int64_t> Plan::place_second_moments(const layout::Model& model,
                                                const layout::Layout& layout, int32_t rank) {
  second_moments.resize(static_cast<size_t>(model.size()));
  std::vector<int64_t> elements(sides.size(), 0);
  for (const layout::Piece& piece : pieces(model, layout, rank)) {
    if (model.at(piece.parameter).matrix) continue;
    int64_t& next = elements[side_index(piece.parameter)];
    second_moments[static_cast<size_t>(piece.parameter)] = next - piece.first;
    next += kernels::in_leaves(piece.count);
  }
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    if (!is_trained(model, id) || !p.matrix) continue;
    sides[side_index(id)].matrices.include(rows_of(p), columns_of(p));
  }
  return elements;
}

int64_t Plan::decisions() const {
  constexpr auto kSum = static_cast<int64_t>(device::Decider::kSumBytes);
  static_assert(kDecision >= static_cast<int64_t>(device::Decider::kDecisionBytes));
  return sums > 0 ? sums * kSum + kDecision : 0;
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
  const bool publishes = published_in == Space::host && !published_at_commit;
  const layout::Parameter& p = model.at(root);
  if (!p.trainable) return publishes ? engine::bytes_of(p.count, compute_) : 0;
  if (piece == nullptr) return 0;
  const Side& side = side_of(root);
  return (publishes ? engine::bytes_of(piece->count, compute_) : 0) +
         (side.separate_master && side.back == Space::host
              ? engine::bytes_of(piece->count, master_format_)
              : 0);
}

int64_t Plan::bytes_of(memory::Purpose purpose, Space space) const {
  const auto sum = [&](int64_t Side::* of, bool there) {
    int64_t bytes = 0;
    for (const Side& side : sides) bytes += there || side.back == space ? side.*of : 0;
    return bytes;
  };
  const bool on_host = space == Space::host;
  switch (purpose) {
    case memory::Purpose::published:
      return space == published_in ? published : 0;
    case memory::Purpose::master:
      return sum(&Side::master, false);
    case memory::Purpose::exp_avg:
      return sum(&Side::exp_avg, false);
    case memory::Purpose::exp_avg_sq:
      return sum(&Side::exp_avg_sq, false);
    case memory::Purpose::accumulators:
      return sum(&Side::accumulators, false);
    case memory::Purpose::buckets:
      return sum(&Side::ring, false) +
             (on_host
                  ? sum(&Side::received, true) + sum(&Side::gradient_staging, true) +
                        sum(&Side::matrix_staging, true) + publish_staging + update_staging +
                        gather_staging + decision_copy()
                  : sum(&Side::received_on_device, true) + sum(&Side::packing, true) + decisions());
    case memory::Purpose::scratch: {  // other scratch comes and goes
      int64_t bytes = 0;
      for (const Side& side : sides) bytes += side.back == space ? side.matrices.bytes() : 0;
      return bytes;
    }
    case memory::Purpose::snapshots:
      return on_host ? snapshots : 0;
    default:
      return 0;  // comes and goes
  }
}

}  // namespace outrigger::engine
