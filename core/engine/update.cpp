// SPDX-License-Identifier: Apache-2.0
// Phase 2 of a step: one fused pass over the owned pieces (unscale, clip, decay, update, round,
// publish), then the moment from which the new parameters are everybody's.
#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "core/engine/step.h"
#include "core/optimizer/adam.h"
#include "kernels/adam_part.h"

namespace outrigger::engine {
bool Engine::is_updated(const Decision& decision, int64_t root) const {
  if (model_.at(root).frozen) return false;
  return config_.unused == config::Unused::zero || decision.present[static_cast<size_t>(root)] != 0;
}

// One fused update for each piece that this rank owns.
std::vector<kernels::Adam> Engine::updates(const Decision& decision) const {
  // Parameters of one group with the same number of updates share their scalars.
  std::map<std::pair<int32_t, int64_t>, kernels::AdamScalars> scalars;
  std::vector<kernels::Adam> pieces;
  for (const layout::Piece& piece : storage_->pieces()) {
    if (!is_updated(decision, piece.parameter)) continue;
    const int64_t applied = updates_[static_cast<size_t>(piece.parameter)];
    const int32_t group = model_.at(piece.parameter).group;
    auto [entry, added] = scalars.try_emplace({group, applied});
    if (added) {
      entry->second = optimizer::adam_scalars(groups_[static_cast<size_t>(group)], applied + 1,
                                              decision.mean * decision.clip);
    }
    kernels::Adam a;
    a.grad_format = config_.accumulator;
    a.grad = reducer_->gradient(piece);
    if (storage_->master_format() == kernels::Format::split) {
      a.weight_format = storage_->compute();
      a.weight = storage_->published(piece);
      a.remainder = reinterpret_cast<uint16_t*>(storage_->master(piece));
    } else {
      a.weight_format = storage_->master_format();
      a.weight = storage_->master(piece);
      if (storage_->has_separate_master()) a.published = storage_->published(piece);
    }
    a.exp_avg_format = storage_->exp_avg_format();
    a.exp_avg = storage_->exp_avg(piece);
    a.exp_avg_sq_format = storage_->exp_avg_sq_format();
    a.exp_avg_sq = storage_->exp_avg_sq(piece);
    a.weight_rounding = config_.optimizer.master.rounding;
    a.exp_avg_rounding = config_.optimizer.exp_avg.rounding;
    a.exp_avg_sq_rounding = config_.optimizer.exp_avg_sq.rounding;
    a.published_format = storage_->compute();
    a.count = piece.count;
    a.scalars = entry->second;
    a.random = streams_[static_cast<size_t>(piece.parameter)];
    a.random.first_element = static_cast<uint64_t>(piece.first);
    a.random.step = static_cast<uint64_t>(applied_steps_);
    pieces.push_back(a);
  }
  return pieces;
}

// The update runs on the host, the published weights go to the device: a master of the published
// format as it is, else what the update rounds of it, by way of a bounded staging block.
kernels::UpdateCount Engine::update_offloaded(std::span<const kernels::Adam> pieces) {
  device::Device& front = *devices_.front;
  const kernels::Format format = storage_->compute();
  const bool direct = storage_->master_format() == format;
  kernels::UpdateCount total;
  std::vector<kernels::Adam> wave;
  std::vector<void*> targets;  // on the device, of each of the wave
  int64_t filled = 0;
  const auto run = [&] {
    kernels::add(total, devices_.back->adam(wave));
    for (size_t i = 0; i < wave.size(); ++i) {
      const void* from = direct ? wave[i].weight : wave[i].published;
      front.upload(targets[i], from, static_cast<size_t>(bytes_of(wave[i].count, format)),
                   front.own_stream());
    }
    front.synchronize(front.own_stream());
    wave.clear();
    targets.clear();
    filled = 0;
  };
  for (const kernels::Adam& piece : pieces) {
    for (int64_t first = 0; first < piece.count;) {
      const int64_t room = direct ? piece.count : plan_->update_elements - filled;
      kernels::Adam part = kernels::part_of(piece, first, std::min(room, piece.count - first));
      targets.push_back(part.published);
      part.published =
          direct ? nullptr
                 : kernels::advance(update_staging_.data(), filled, part.published_format);
      first += part.count;
      // Every part begins at a leaf, in the staging block and in its parameter.
      filled += (part.count + kernels::kLeaf - 1) / kernels::kLeaf * kernels::kLeaf;
      wave.push_back(part);
      if (!direct && filled >= plan_->update_elements) run();
    }
  }
  if (!wave.empty()) run();
  return total;
}

kernels::UpdateCount Engine::update(const Decision& decision) {
  const std::vector<kernels::Adam> pieces = updates(decision);
  const kernels::UpdateCount count =
      devices_.offloaded() ? update_offloaded(pieces) : devices_.back->adam(pieces);
  for (int64_t id = 0; id < model_.size(); ++id) {
    if (model_.at(id).root == id && is_updated(decision, id)) ++updates_[static_cast<size_t>(id)];
  }
  return count;
}

// From here on an acquire shows the new parameters: every rank has written its pieces of the shared
// copy.
kernels::UpdateCount Engine::publish(const kernels::UpdateCount& mine) {
  std::vector<kernels::UpdateCount> all(static_cast<size_t>(control_->size()));
  control_->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                       "publish parameters");
  storage_->publish();
  if (!storage_->sharded()) return mine;  // every rank counted everything
  kernels::UpdateCount sum;
  for (const kernels::UpdateCount& c : all) kernels::add(sum, c);
  return sum;
}

}  // namespace outrigger::engine
