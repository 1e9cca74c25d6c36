// SPDX-License-Identifier: Apache-2.0
#include "core/engine/update.h"

#include <algorithm>
#include <utility>

#include "core/comm/combine.h"
#include "core/optimizer/random_key.h"
#include "core/optimizer/schedule.h"
#include "kernels/update_part.h"

namespace outrigger::engine {
namespace {

// Pieces in order, in runs of at most `room` elements: where they are more, cut into parts.
class Runs {
 public:
  Runs(std::span<const layout::Piece> pieces, int64_t room) {
    int64_t elements = 0;
    for (const layout::Piece& piece : pieces) elements += kernels::in_leaves(piece.count);
    if (elements <= room) {
      runs_.push_back(pieces);
    } else {
      cut(pieces, room);
    }
  }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;
  [[nodiscard]] const std::vector<std::span<const layout::Piece>>& all() const { return runs_; }

 private:
  void cut(std::span<const layout::Piece> pieces, int64_t room) {
    std::vector<size_t> ends;
    int64_t filled = 0;
    for (const layout::Piece& piece : pieces) {
      for (int64_t first = 0; first < piece.count;) {
        if (filled >= room) {
          ends.push_back(parts_.size());
          filled = 0;
        }
        const int64_t n = std::min(piece.count - first, room - filled);
        parts_.push_back(layout::part_of(piece, first, n));
        filled += kernels::in_leaves(n);
        first += n;
      }
    }
    ends.push_back(parts_.size());
    size_t begin = 0;
    for (const size_t end : ends) {
      runs_.emplace_back(std::span(parts_).subspan(begin, end - begin));
      begin = end;
    }
  }
  std::vector<layout::Piece> parts_;
  std::vector<std::span<const layout::Piece>> runs_;
};

}  // namespace

Updater::Updater(Declared& declared, Committed& committed, Run& run, const Window& window)
    : declared_(declared), committed_(committed), run_(run), window_(window) {
  if (committed.plan.uploads_updates()) {
    offloaded_ =
        std::make_unique<OffloadedUpdate>(committed.devices, committed.plan, declared.config.pin,
                                          committed.published, *committed.states, declared.ledger);
  }
  if (committed.plan.matrices.elements > 0) {
    matrices_ = std::make_unique<Matrices>(committed.control, committed.undivided_back(),
                                           declared.model, committed.layout, committed.plan,
                                           declared.config.pin, declared.ledger);
  }
  for (int64_t id = 0; id < declared.model.size(); ++id) {
    random_.push_back(
        optimizer::random_stream(declared.config.optimizer.seed, declared.model.at(id).name));
  }
}

kernels::Update Updater::update_of(const layout::Piece& piece, const StateStore::Leased& states,
                                   optimizer::StepScalars& scalars) const {
  const StateStore& store = *committed_.states;
  const layout::Parameter& parameter = declared_.model.at(piece.parameter);
  const auto root = static_cast<size_t>(piece.parameter);
  kernels::Update a;
  optimizer::set_rule(a, declared_.config.optimizer, parameter.matrix);
  a.grad_format = declared_.config.accumulator;
  a.grad = window_.gradient(piece);
  std::byte* const published = committed_.published.at(piece);
  if (store.format(State::master) == kernels::Format::split) {
    a.weight_format = committed_.published.format();
    a.weight = published;
    a.remainder = reinterpret_cast<uint16_t*>(states.master);
  } else {
    a.weight_format = store.format(State::master);
    a.weight = states.master;
    if (committed_.plan.side_of(piece.parameter).separate_master) a.published = published;
  }
  a.exp_avg_format = store.format(State::exp_avg);
  a.exp_avg = states.exp_avg;
  a.exp_avg_scales = states.exp_avg_scales;
  a.exp_avg_sq_format = store.format(State::exp_avg_sq);
  a.exp_avg_sq = states.exp_avg_sq;
  a.exp_avg_sq_scales = states.exp_avg_sq_scales;
  a.published_format = committed_.published.format();
  a.count = piece.count;
  a.scalars = scalars.of(parameter.group, declared_.groups[static_cast<size_t>(parameter.group)],
                         run_.applied_steps, run_.updates[root], a.rule);
  a.random = random_[root];
  a.random.first_element = static_cast<uint64_t>(piece.first);
  a.random.step = static_cast<uint64_t>(run_.applied_steps.load());
  return a;
}

// A body that throws ends the engine, and with it all leases.
void Updater::visit(std::span<const layout::Piece> pieces, const Access& access,
                    optimizer::StepScalars& scalars, const Visit& body) {
  StateStore& store = *committed_.states;
  store.about_to_change(access.written);
  const Runs runs(pieces, store.room());
  const auto fetch = [&](size_t run) {
    if (run >= runs.all().size()) return;
    for (const layout::Piece& piece : runs.all()[run]) store.fetch(piece, access.read);
  };
  fetch(0);
  for (size_t i = 0; i < runs.all().size(); ++i) {
    const std::span<const layout::Piece> leased = runs.all()[i];
    std::vector<kernels::Update> updates;
    updates.reserve(leased.size());
    for (const layout::Piece& piece : leased) {
      updates.push_back(update_of(piece, store.lease(piece, access.read), scalars));
    }
    fetch(i + 1);
    body({updates, leased});
    for (const layout::Piece& piece : leased) store.give_back(piece, access.written);
  }
  store.settle();
}

kernels::UpdateCount Updater::run(std::span<const kernels::Update> updates,
                                  std::span<const layout::Piece> pieces) {
  if (!offloaded_) return committed_.undivided_back().update(updates);
  device::Device& front = *committed_.devices.front;
  const auto is_kept = [&](const layout::Piece& p) {
    return !committed_.back_of(p.parameter).is_host();
  };
  const auto kept =
      static_cast<size_t>(std::ranges::partition_point(pieces, is_kept) - pieces.begin());
  std::unique_ptr<device::Updating> beside;
  if (kept > 0) beside = front.begin_update(updates.first(kept));
  kernels::UpdateCount count = offloaded_->run(updates.subspan(kept), pieces.subspan(kept));
  if (beside) kernels::add(count, beside->wait());
  return count;
}

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
    const std::vector<device::LambNorms> mine = committed_.undivided_back().lamb_norms(v.updates);
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
  std::vector<Matrices::Matrix> all;
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    if (p.root != id || !p.trainable || !p.matrix || !window_.is_updated(decision, id)) continue;
    const double factor =
        optimizer::muon_factor(declared_.config.optimizer, rows_of(p), columns_of(p));
    all.push_back({id, declared_.lr_of(id, run_.applied_steps) * factor});
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
  kernels::add(
      count, matrices_->update(std::move(all), declared_.config.optimizer.ns_steps, lease, update));
  committed_.states->settle();
  return count;
}

std::vector<layout::Piece> Updater::pieces_of(const Decision& decision) const {
  std::vector<layout::Piece> pieces;
  for (const layout::Piece& piece : committed_.pieces) {
    if (window_.is_updated(decision, piece.parameter)) pieces.push_back(piece);
  }
  return pieces;
}

void Updater::update_there(const Decision& decision, DeviceDecision& there) {
  const observe::Span span(&declared_.timeline, observe::Phase::update);
  const std::vector<layout::Piece> pieces = pieces_of(decision);
  optimizer::StepScalars scalars(1);  // the decision has the factor
  visit(pieces, {}, scalars, [&](const Visited& v) { there.update(v.updates); });
}

kernels::UpdateCount Updater::update(const Decision& decision) {
  const observe::Span span(&declared_.timeline, observe::Phase::update);
  const std::vector<layout::Piece> pieces = pieces_of(decision);
  optimizer::StepScalars scalars(decision.mean * decision.clip);
  kernels::UpdateCount count;
  if (matrices_) {
    count = update_matrices(pieces, decision, scalars);
  } else if (declared_.config.optimizer.rule == kernels::Rule::lamb) {
    count = update_layers(pieces, scalars);
  } else {
    visit(pieces, {}, scalars,
          [&](const Visited& v) { kernels::add(count, run(v.updates, v.pieces)); });
  }
  count_updates(updated_by(decision));
  return count;
}

std::vector<int64_t> Updater::updated_by(const Decision& decision) const {
  std::vector<int64_t> roots;
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    if (declared_.model.at(id).root == id && window_.is_updated(decision, id)) roots.push_back(id);
  }
  return roots;
}

void Updater::count_updates(std::span<const int64_t> roots) {
  for (const int64_t id : roots) ++run_.updates[static_cast<size_t>(id)];
}

kernels::UpdateCount Updater::publish(const kernels::UpdateCount& mine) {
  observe::Span span(&declared_.timeline, observe::Phase::publish);
  kernels::UpdateCount sum = committed_.counts ? mine : kernels::UpdateCount{};
  const auto add = [](kernels::UpdateCount& into, const kernels::UpdateCount& from) {
    kernels::add(into, from);
  };
  comm::combine_value(committed_.control, sum, add, "publish parameters");
  span.set_bytes(committed_.published.publish());
  return committed_.sharded() ? sum : mine;  // not sharded: every rank counted everything
}

}  // namespace outrigger::engine
