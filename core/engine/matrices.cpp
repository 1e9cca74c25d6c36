// SPDX-License-Identifier: Apache-2.0
#include "core/engine/matrices.h"

#include <algorithm>

#include "core/optimizer/rule.h"
#include "kernels/update_part.h"

namespace outrigger::engine {
namespace {

// A round of more work than this, about a tenth of a second, is one in which ranks meet again and
// again: a rank that computes for minutes would look like one that hangs.
constexpr int64_t kLong = 250'000'000;

}  // namespace

Matrices::Matrices(comm::Group& comm, device::Host& host, const layout::Model& model,
                   const layout::Layout& layout, const Plan& plan, memory::Ledger& ledger)
    : comm_(&comm),
      host_(&host),
      model_(&model),
      layout_(&layout),
      sharded_(plan.home != Home::copy),
      memory_(ledger, memory::Purpose::scratch, plan.matrices.bytes()),
      newton_schulz_(host, plan.matrices, memory_.data()) {}

// Of an iteration, but for a factor.
int64_t Matrices::work(int64_t root) const {
  const layout::Parameter& p = model_->at(root);
  return std::min(rows_of(p), columns_of(p)) * p.count;
}

// The direction of a whole matrix, on every rank.
void Matrices::gather(int64_t root, const WithPiece& with_piece) {
  float* const whole = newton_schulz_.matrix();
  with_piece(root, [&](const kernels::Update& piece) {
    host_->muon_direction(piece, whole + piece.random.first_element);
  });
  if (!sharded_) return;
  for (const auto& [owner, piece] : layout_->owners(*model_, root)) {
    comm_->broadcast(
        std::as_writable_bytes(std::span(whole + piece.first, static_cast<size_t>(piece.count))),
        comm_->rank_of_slice(owner), "direction of a matrix");
  }
}

kernels::UpdateCount Matrices::update(std::vector<Matrix> matrices, int32_t steps,
                                      const WithPiece& with_piece, const Update& update) {
  std::ranges::stable_sort(
      matrices, [&](const Matrix& a, const Matrix& b) { return work(a.root) > work(b.root); });
  const auto ranks = static_cast<size_t>(comm_->size()), rank = static_cast<size_t>(comm_->rank());
  kernels::UpdateCount count;
  for (size_t first = 0; first < matrices.size(); first += ranks) {
    const auto round = std::span(matrices).subspan(first, std::min(ranks, matrices.size() - first));
    for (size_t i = 0; i < round.size(); ++i) {
      gather(round[i].root, with_piece);
      const layout::Parameter& p = model_->at(round[i].root);
      if (i == rank) newton_schulz_.take(rows_of(p), columns_of(p));
    }
    const bool is_long = work(round[0].root) > kLong;
    const auto meet = [&] {
      if (is_long) comm_->barrier("orthogonalise matrices");
    };
    float* mine = nullptr;
    if (rank < round.size()) {
      mine = newton_schulz_.solve(steps, meet);
    } else {
      for (int32_t i = 0; i < steps * optimizer::NewtonSchulz::kProducts; ++i) meet();
    }
    for (size_t i = 0; i < round.size(); ++i) {
      float* const direction = i == rank ? mine : newton_schulz_.matrix();
      const auto elements = static_cast<size_t>(model_->at(round[i].root).count);
      comm_->broadcast(std::as_writable_bytes(std::span(direction, elements)),
                       static_cast<int32_t>(i), "orthogonal direction of a matrix");
      with_piece(round[i].root, [&](const kernels::Update& piece) {
        kernels::add(count, update(optimizer::by_direction(
                                piece, direction + piece.random.first_element, round[i].lr)));
      });
    }
  }
  return count;
}

}  // namespace outrigger::engine
