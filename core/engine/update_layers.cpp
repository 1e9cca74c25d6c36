// SPDX-License-Identifier: Apache-2.0
// The updates of rules that look at a parameter as a whole, with what other ranks have of it.
#include <algorithm>
#include <utility>

#include "core/comm/combine.h"
#include "core/engine/update.h"

namespace outrigger::engine {

// LAMB visits its pieces twice: for the moments and the norms that follow from them, and, once the
// trust ratio of each parameter is known, for the weights. Every rank counts a piece that all have
// once.
kernels::UpdateCount Updater::update_layers(std::span<const layout::Piece> pieces,
                                            optimizer::StepScalars& scalars) {
  struct alignas(256) Norms {  // see combine_values
    kernels::NormSum weights, directions;
  };
  std::vector<Norms> norms(static_cast<size_t>(declared_.model.size()));
  visit(pieces, {kAllStates, kMoments}, scalars, [&](const Visited& v) {
    const size_t there = count_on_device(v.pieces);
    std::vector<device::LambNorms> mine;
    if (there > 0) mine = committed_.devices.front->lamb_norms(v.updates.first(there));
    if (there < v.updates.size()) {
      const auto here = committed_.devices.host->lamb_norms(v.updates.subspan(there));
      mine.insert(mine.end(), here.begin(), here.end());
    }
    for (size_t i = 0; i < v.updates.size(); ++i) {
      Norms& n = norms[static_cast<size_t>(v.pieces[i].parameter)];
      kernels::merge(n.weights, mine[i].weights);
      kernels::merge(n.directions, mine[i].directions);
    }
  });
  if (committed_.sharded()) {
    if (!committed_.counts) std::ranges::fill(norms, Norms{});
    const auto merge = [](Norms& into, const Norms& from) {
      kernels::merge(into.weights, from.weights);
      kernels::merge(into.directions, from.directions);
    };
    comm::combine_values(committed_.control, std::span(norms), merge, "norms of LAMB's layers");
  }
  kernels::UpdateCount count;
  visit(pieces, {kAllStates, kMaster}, scalars, [&](const Visited& v) {
    for (size_t i = 0; i < v.updates.size(); ++i) {
      const Norms& n = norms[static_cast<size_t>(v.pieces[i].parameter)];
      const double ratio =
          optimizer::trust_ratio(declared_.config.optimizer, optimizer::norm_of(n.weights),
                                 optimizer::norm_of(n.directions));
      const double lr = declared_.lr_of(v.pieces[i].parameter, run_.applied_steps);
      v.updates[i].scalars.minus_step = static_cast<float>(-lr * ratio);
    }
    kernels::add(count, run(v.updates, v.pieces));
  });
  return count;
}

// All of Muon's matrices on every rank, with the piece that lies here; the other parameters alone.
kernels::UpdateCount Updater::update_matrices(std::span<const layout::Piece> pieces,
                                              const Decision& decision,
                                              optimizer::StepScalars& scalars) {
  const layout::Model& model = declared_.model;
  std::vector<layout::Piece> others;
  for (const layout::Piece& piece : pieces) {
    if (!model.at(piece.parameter).matrix) others.push_back(piece);
  }
  kernels::UpdateCount count;
  visit(others, {}, scalars,
        [&](const Visited& v) { kernels::add(count, run(v.updates, v.pieces)); });
  std::vector<std::vector<Matrices::Matrix>> all(matrices_.size());  // by side
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    if (p.root != id || !p.trainable || !p.matrix || !window_.is_updated(decision, id)) continue;
    const double factor =
        optimizer::muon_factor(declared_.config.optimizer, rows_of(p), columns_of(p));
    all[committed_.plan.side_index(id)].push_back(
        {id, declared_.lr_of(id, run_.applied_steps) * factor});
  }
  layout::Piece leased;
  const auto lease = [&](int64_t root, const auto& body) {
    if (const auto piece = committed_.local_piece(root)) {
      const Lease own(*committed_.states, *piece, kAllStates, kAllStates);
      leased = *piece;
      body(update_of(*piece, own.states(), scalars));
    }
  };
  const auto update = [&](const kernels::Update& piece) {
    return run(std::span(&piece, 1), std::span(&leased, 1));
  };
  for (size_t side = 0; side < all.size(); ++side) {
    if (all[side].empty()) continue;
    kernels::add(count,
                 matrices_[side]->update(std::move(all[side]), declared_.config.optimizer.ns_steps,
                                         lease, update));
  }
  committed_.states->settle();
  return count;
}

}  // namespace outrigger::engine
