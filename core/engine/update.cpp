// SPDX-License-Identifier: Apache-2.0
#include "core/engine/update.h"

#include <algorithm>

#include "core/comm/combine.h"
#include "core/engine/leased_runs.h"
#include "core/engine/own_pieces.h"
#include "core/optimizer/random_key.h"

namespace outrigger::engine {
namespace {

// Elements that are updated before somebody who waits for them is told, here or on another rank.
constexpr int64_t kToldTogether = int64_t{1} << 20;

}  // namespace

Updater::Updater(Declared& declared, Committed& committed, Run& run, const Window& window,
                 NewWeights& new_weights)
    : declared_(declared),
      committed_(committed),
      run_(run),
      window_(window),
      new_weights_(new_weights) {
  const bool ahead = committed.published.goes_ahead() || committed.published.marks() != nullptr;
  if (ahead && !declared.config.optimizer.host) {
    ahead_ = std::make_unique<PublishAhead>(
        declared.model, committed.layout, committed.published,
        own_pieces(committed.published, *committed.states, committed.plan), new_weights);
  }
  if (committed.plan.uploads_updates()) {
    offloaded_ = std::make_unique<OffloadedUpdate>(
        committed.devices, committed.plan, declared.config.pin, committed.published,
        *committed.states, [this](int64_t root, int64_t elements) { note_updated(root, elements); },
        declared.ledger);
  }
  for (const Side& side : committed.plan.sides) {
    if (declared.config.optimizer.rule != kernels::Rule::muon) break;
    matrices_.push_back(
        side.matrices.elements == 0
            ? nullptr
            : std::make_unique<Matrices>(committed.control, committed.devices.of(side.back),
                                         declared.model, committed.layout, committed.plan, side,
                                         declared.config.pin, declared.ledger));
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
  const LeasedRuns runs(pieces, store.room());
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

size_t Updater::count_on_device(std::span<const layout::Piece> pieces) const {
  const auto is_there = [&](const layout::Piece& p) {
    return !committed_.back_of(p.parameter).is_host();
  };
  return static_cast<size_t>(std::ranges::partition_point(pieces, is_there) - pieces.begin());
}

kernels::UpdateCount Updater::run(std::span<const kernels::Update> updates,
                                  std::span<const layout::Piece> pieces) {
  if (!offloaded_) return run_here(updates, pieces);
  device::Device& front = *committed_.devices.front;
  const size_t kept = count_on_device(pieces);
  std::unique_ptr<device::Updating> beside;
  if (kept > 0) {
    beside = front.begin_update(updates.first(kept));
    const device::Event updated = front.record(front.own_stream());
    for (const layout::Piece& piece : pieces.first(kept)) {
      committed_.published.set_ready(piece.parameter, updated);
      note_updated(piece.parameter, piece.count);
    }
  }
  kernels::UpdateCount count = offloaded_->run(updates.subspan(kept), pieces.subspan(kept));
  if (beside) kernels::add(count, beside->wait());
  return count;
}

void Updater::note_updated(int64_t root, int64_t elements) {
  if (ahead_) {
    ahead_->updated(root, elements);
  } else {
    new_weights_.add(root, elements);
  }
}

// In parts where somebody waits for the first ones, which a forward needs first, or they go to
// other ranks.
kernels::UpdateCount Updater::run_here(std::span<const kernels::Update> updates,
                                       std::span<const layout::Piece> pieces) {
  device::Device& back = committed_.undivided_back();
  const bool in_parts =
      committed_.published.goes_ahead() || (back.is_host() && new_weights_.is_awaited());
  if (!ahead_ && !in_parts) return back.update(updates);
  const int64_t together = in_parts ? kToldTogether : INT64_MAX;
  kernels::UpdateCount count;
  for (size_t first = 0, end = 0; first < updates.size(); first = end) {
    for (int64_t n = 0; end < updates.size() && n < together; ++end) n += updates[end].count;
    kernels::add(count, back.update(updates.subspan(first, end - first)));
    for (const layout::Piece& piece : pieces.subspan(first, end - first)) {
      note_updated(piece.parameter, piece.count);
    }
  }
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
  if (ahead_) {
    ahead_->begin(pieces);
  } else if (declared_.world == 1 || !committed_.sharded()) {
    new_weights_.expect(pieces);
  }
  optimizer::StepScalars scalars(decision.mean * decision.clip);
  kernels::UpdateCount count;
  if (!matrices_.empty()) {
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
  if (ahead_) {
    ahead_->finish();
  } else {
    span.set_bytes(committed_.published.publish());
  }
  return committed_.sharded() ? sum : mine;  // not sharded: every rank counted everything
}

}  // namespace outrigger::engine
