// SPDX-License-Identifier: Apache-2.0
// Phase 2 of a step: one fused pass over the owned pieces (unscale, clip, decay, update, round,
// publish), then the moment from which the new parameters are everybody's.
#include <algorithm>
#include <map>
#include <span>

#include "core/engine/step.h"
#include "core/optimizer/adam.h"

namespace outrigger::engine {
namespace {

constexpr int64_t kTask = 256 * kernels::kLeaf;  // elements of one worker's task

struct Task {
  const layout::Piece* piece;
  int64_t first;  // in the piece
  int64_t count;
  const kernels::AdamScalars* scalars;
};

template <typename T>
T* advance(T* pointer, int64_t elements, kernels::Format format) {
  return pointer + elements * static_cast<int64_t>(kernels::size_of(format));
}

}  // namespace

kernels::UpdateCount Engine::update(const Decision& decision) {
  // Parameters of one group with the same number of updates share their scalars.
  std::map<std::pair<int32_t, int64_t>, kernels::AdamScalars> scalars;
  const auto is_updated = [&](size_t root) {
    if (model_.at(static_cast<int64_t>(root)).frozen) return false;
    return config_.unused == config::Unused::zero || decision.present[root] != 0;
  };
  std::vector<Task> tasks;
  int64_t last_root = -1;
  const kernels::AdamScalars* last = nullptr;
  for (const layout::Piece& piece : storage_->pieces()) {
    const auto root = static_cast<size_t>(piece.parameter);
    if (!is_updated(root)) continue;
    if (piece.parameter != last_root) {
      const int32_t group = model_.at(piece.parameter).group;
      auto [entry, added] = scalars.try_emplace({group, updates_[root]});
      if (added) {
        entry->second = optimizer::adam_scalars(groups_[static_cast<size_t>(group)],
                                                updates_[root] + 1, decision.mean * decision.clip);
      }
      last = &entry->second;
      last_root = piece.parameter;
    }
    for (int64_t first = 0; first < piece.count; first += kTask) {
      tasks.push_back({&piece, first, std::min(kTask, piece.count - first), last});
    }
  }
  std::vector<kernels::UpdateCount> counts(static_cast<size_t>(workers_->size()));
  workers_->run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int32_t worker) {
    const Task& task = tasks[static_cast<size_t>(index)];
    const layout::Piece& piece = *task.piece;
    kernels::Adam a;
    a.grad_format = config_.accumulator;
    a.grad = advance(reducer_->gradient(piece), task.first, a.grad_format);
    a.weight_format = storage_->master_format();
    a.weight = advance(storage_->master(piece), task.first, a.weight_format);
    a.exp_avg_format = storage_->exp_avg_format();
    a.exp_avg = advance(storage_->exp_avg(piece), task.first, a.exp_avg_format);
    a.exp_avg_sq_format = storage_->exp_avg_sq_format();
    a.exp_avg_sq = advance(storage_->exp_avg_sq(piece), task.first, a.exp_avg_sq_format);
    a.weight_rounding = config_.optimizer.master.rounding;
    a.exp_avg_rounding = config_.optimizer.exp_avg.rounding;
    a.exp_avg_sq_rounding = config_.optimizer.exp_avg_sq.rounding;
    if (storage_->has_separate_master()) {
      a.published_format = storage_->compute();
      a.published = advance(storage_->published(piece), task.first, a.published_format);
    }
    a.count = task.count;
    a.scalars = *task.scalars;
    a.random = streams_[static_cast<size_t>(piece.parameter)];
    a.random.first_element = static_cast<uint64_t>(piece.first + task.first);
    a.random.step = static_cast<uint64_t>(applied_steps_);
    const kernels::UpdateCount count = kernels::adam(a);
    counts[static_cast<size_t>(worker)].updates += count.updates;
    counts[static_cast<size_t>(worker)].vanished += count.vanished;
  });
  for (int64_t id = 0; id < model_.size(); ++id) {
    const auto root = static_cast<size_t>(id);
    if (model_.at(id).root == id && is_updated(root)) ++updates_[root];
  }
  for (size_t w = 1; w < counts.size(); ++w) {
    counts[0].updates += counts[w].updates;
    counts[0].vanished += counts[w].vanished;
  }
  return counts[0];
}

// From here on an acquire shows the new parameters: every rank has written its pieces of the shared
// copy.
kernels::UpdateCount Engine::publish(const kernels::UpdateCount& mine) {
  std::vector<kernels::UpdateCount> all(static_cast<size_t>(control_->size()));
  control_->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                       "publish parameters");
  storage_->publish(*control_);
  if (!storage_->sharded()) return mine;  // every rank counted everything
  kernels::UpdateCount sum;
  for (const kernels::UpdateCount& c : all) {
    sum.updates += c.updates;
    sum.vanished += c.vanished;
  }
  return sum;
}

}  // namespace outrigger::engine
