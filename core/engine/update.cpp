// SPDX-License-Identifier: Apache-2.0
// Phase 2 of a step: one fused pass over the owned pieces (unscale, clip, decay, update, round,
// publish), then the moment from which the new parameters are everybody's.
#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "core/comm/combine.h"
#include "core/engine/step.h"
#include "core/optimizer/rule.h"
#include "core/optimizer/schedule.h"
#include "kernels/update_part.h"

namespace outrigger::engine {
bool Engine::is_updated(const Decision& decision, int64_t root) const {
  if (model_.at(root).frozen) return false;
  return config_.unused == config::Unused::zero || decision.present[root];
}

// One fused update for each piece that this rank owns; and its parameter.
std::vector<kernels::Update> Engine::updates(const Decision& decision,
                                             std::vector<int64_t>& roots) const {
  optimizer::StepScalars scalars(decision.mean * decision.clip);
  std::vector<kernels::Update> pieces;
  for (const layout::Piece& piece : storage_->pieces()) {
    if (!is_updated(decision, piece.parameter)) continue;
    const int64_t applied = updates_[static_cast<size_t>(piece.parameter)];
    const int32_t group = model_.at(piece.parameter).group;
    kernels::Update a;
    optimizer::set_rule(a, config_.optimizer, model_.at(piece.parameter).matrix);
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
    if (config_.optimizer.keeps_exp_avg()) a.exp_avg = storage_->exp_avg(piece);
    a.exp_avg_sq_format = storage_->exp_avg_sq_format();
    if (config_.optimizer.keeps_exp_avg_sq() && a.rule != kernels::Rule::muon) {
      a.exp_avg_sq = storage_->exp_avg_sq(piece);
    }
    a.published_format = storage_->compute();
    a.count = piece.count;
    a.scalars =
        scalars.of(group, groups_[static_cast<size_t>(group)], applied_steps_, applied, a.rule);
    a.random = streams_[static_cast<size_t>(piece.parameter)];
    a.random.first_element = static_cast<uint64_t>(piece.first);
    a.random.step = static_cast<uint64_t>(applied_steps_.load());
    pieces.push_back(a);
    roots.push_back(piece.parameter);
  }
  return pieces;
}

// The update runs on the host, the published weights go to the device: a master of the published
// format as it is, else what the update rounds of it, by way of a bounded staging block.
kernels::UpdateCount Engine::update_offloaded(std::span<const kernels::Update> pieces) {
  device::Device& front = *devices_.front;
  const kernels::Format format = storage_->compute();
  const bool direct = storage_->master_format() == format;
  kernels::UpdateCount total;
  std::vector<kernels::Update> wave;
  std::vector<void*> targets;  // on the device, of each of the wave
  int64_t filled = 0;
  const auto run = [&] {
    kernels::add(total, devices_.back->update(wave));
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
  for (const kernels::Update& piece : pieces) {
    for (int64_t first = 0; first < piece.count;) {
      const int64_t room = direct ? piece.count : plan_->update_elements - filled;
      kernels::Update part = kernels::part_of(piece, first, std::min(room, piece.count - first));
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

// LAMB's trust ratio of each parameter, from the norms of all of its pieces; every rank counts a
// piece that all have once.
void Engine::scale_layers(std::span<kernels::Update> pieces, std::span<const int64_t> roots) {
  struct alignas(256) Norms {  // see combine_values
    kernels::NormSum weights, directions;
  };
  std::vector<Norms> norms(static_cast<size_t>(model_.size()));
  const std::vector<device::Host::LambNorms> mine = host_->lamb_norms(pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    Norms& n = norms[static_cast<size_t>(roots[i])];
    kernels::merge(n.weights, mine[i].weights);
    kernels::merge(n.directions, mine[i].directions);
  }
  if (storage_->sharded()) {
    const auto merge = [](Norms& into, const Norms& from) {
      kernels::merge(into.weights, from.weights);
      kernels::merge(into.directions, from.directions);
    };
    comm::combine_values(*control_, std::span(norms), merge, "norms of LAMB's layers");
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Norms& n = norms[static_cast<size_t>(roots[i])];
    const double ratio = optimizer::trust_ratio(config_.optimizer, optimizer::norm_of(n.weights),
                                                optimizer::norm_of(n.directions));
    pieces[i].scalars.minus_step = static_cast<float>(-lr_of(roots[i]) * ratio);
  }
}

double Engine::lr_of(int64_t root) const {
  const config::OptimizerConfig& group = groups_[static_cast<size_t>(model_.at(root).group)];
  return optimizer::scheduled_lr(group.schedule, applied_steps_, group.lr);
}

kernels::UpdateCount Engine::update_pieces(std::span<const kernels::Update> pieces) {
  return devices_.offloaded() ? update_offloaded(pieces) : devices_.back->update(pieces);
}

// All of Muon's matrices on every rank, with the piece that lies here; the other parameters alone.
kernels::UpdateCount Engine::update_matrices(std::span<const kernels::Update> pieces,
                                             std::span<const int64_t> roots,
                                             const Decision& decision) {
  std::vector<kernels::Update> others;
  std::map<int64_t, kernels::Update> here;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].rule == kernels::Rule::muon) {
      here.emplace(roots[i], pieces[i]);
    } else {
      others.push_back(pieces[i]);
    }
  }
  kernels::UpdateCount count = update_pieces(others);
  std::vector<Matrices::Matrix> all;
  for (int64_t id = 0; id < model_.size(); ++id) {
    const layout::Parameter& p = model_.at(id);
    if (p.root != id || !p.trainable || !p.matrix || !is_updated(decision, id)) continue;
    const double factor = optimizer::muon_factor(config_.optimizer, rows_of(p), columns_of(p));
    all.push_back({id, here[id], lr_of(id) * factor});
  }
  kernels::add(count, matrices_->update(std::move(all), config_.optimizer.ns_steps,
                                        [this](const auto& piece) {
                                          return update_pieces(std::span(&piece, 1));
                                        }));
  return count;
}

kernels::UpdateCount Engine::update(const Decision& decision) {
  std::vector<int64_t> roots;
  std::vector<kernels::Update> pieces = updates(decision, roots);
  if (config_.optimizer.rule == kernels::Rule::lamb) scale_layers(pieces, roots);
  const kernels::UpdateCount count =
      matrices_ ? update_matrices(pieces, roots, decision) : update_pieces(pieces);
  for (int64_t id = 0; id < model_.size(); ++id) {
    if (model_.at(id).root == id && is_updated(decision, id)) ++updates_[static_cast<size_t>(id)];
  }
  return count;
}

// From here on an acquire shows the new parameters: every rank has written its pieces of the shared
// copy.
kernels::UpdateCount Engine::publish(const kernels::UpdateCount& mine) {
  kernels::UpdateCount sum = mine;
  const auto add = [](kernels::UpdateCount& into, const kernels::UpdateCount& from) {
    kernels::add(into, from);
  };
  comm::combine_value(*control_, sum, add, "publish parameters");
  storage_->publish();
  wrote_locally_ = false;
  return storage_->sharded() ? sum : mine;  // not sharded: every rank counted everything
}

}  // namespace outrigger::engine
