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

Matrices::Matrices(comm::Group& comm, device::Device& device, const layout::Model& model,
                   const layout::Layout& layout, const Plan& plan, const Side& side,
                   config::Pin pin, memory::Ledger& ledger)
    : comm_(&comm),
      device_(&device),
      model_(&model),
      layout_(&layout),
      sharded_(plan.home != Home::copy),
      memory_(ledger, memory::Purpose::scratch, side.matrices.bytes(), &device),
      staging_(ledger, memory::Purpose::buckets, side.matrix_staging),
      newton_schulz_(device, side.matrices, memory_.data()) {
  if (staging_) {
    pinned_ = memory::Pinned(device, ledger,
                             {staging_.data(), static_cast<size_t>(staging_.bytes())}, pin);
  }
}

// Of an iteration, but for a factor.
int64_t Matrices::work(int64_t root) const {
  const layout::Parameter& p = model_->at(root);
  return std::min(rows_of(p), columns_of(p)) * p.count;
}

void Matrices::to_exchange(const float* matrix, int64_t first, int64_t count) {
  if (!staging_) return;
  auto* const exchanged = reinterpret_cast<float*>(staging_.data());
  device_->download(exchanged + first, matrix + first, static_cast<size_t>(count) * sizeof(float),
                    device_->own_stream());
}

void Matrices::from_exchange(float* matrix, int64_t first, int64_t count) {
  if (!staging_) return;
  const auto* const exchanged = reinterpret_cast<const float*>(staging_.data());
  device_->upload(matrix + first, exchanged + first, static_cast<size_t>(count) * sizeof(float),
                  device_->own_stream());
}

// The direction of a whole matrix, where ranks exchange it.
void Matrices::gather(int64_t root, const WithPiece& with_piece) {
  float* const whole = newton_schulz_.matrix();
  with_piece(root, [&](const kernels::Update& piece) {
    const auto first = static_cast<int64_t>(piece.random.first_element);
    device_->muon_direction(piece, whole + first);
    if (sharded_) to_exchange(whole, first, piece.count);
  });
  if (!sharded_ || comm_->size() == 1) return;
  device_->synchronize(device_->own_stream());
  float* const exchanged = staging_ ? reinterpret_cast<float*>(staging_.data()) : whole;
  for (const auto& [owner, piece] : layout_->owners(*model_, root)) {
    comm_->broadcast(std::as_writable_bytes(
                         std::span(exchanged + piece.first, static_cast<size_t>(piece.count))),
                     comm_->rank_of_slice(owner), "direction of a matrix");
  }
}

void Matrices::take(int64_t root) {
  const layout::Parameter& p = model_->at(root);
  if (sharded_) from_exchange(newton_schulz_.matrix(), 0, p.count);
  newton_schulz_.take(rows_of(p), columns_of(p));
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
      if (i == rank) take(round[i].root);
    }
    const bool is_long = work(round[0].root) > kLong;
    const auto meet = [&] {
      if (!is_long) return;
      device_->synchronize(device_->own_stream());
      comm_->barrier("orthogonalise matrices");
    };
    float* mine = nullptr;
    if (rank < round.size()) {
      mine = newton_schulz_.solve(steps, meet);
    } else {
      for (int32_t i = 0; i < steps * optimizer::NewtonSchulz::kProducts; ++i) meet();
    }
    for (size_t i = 0; i < round.size(); ++i) {
      float* const direction = i == rank ? mine : newton_schulz_.matrix();
      const int64_t elements = model_->at(round[i].root).count;
      if (comm_->size() > 1) {
        if (i == rank) {
          to_exchange(direction, 0, elements);
          device_->synchronize(device_->own_stream());
        }
        float* const exchanged = staging_ ? reinterpret_cast<float*>(staging_.data()) : direction;
        comm_->broadcast(
            std::as_writable_bytes(std::span(exchanged, static_cast<size_t>(elements))),
            static_cast<int32_t>(i), "orthogonal direction of a matrix");
      }
      with_piece(round[i].root, [&](const kernels::Update& piece) {
        const auto first = static_cast<int64_t>(piece.random.first_element);
        if (i != rank) from_exchange(direction, first, piece.count);
        kernels::add(count, update(optimizer::by_direction(piece, direction + first, round[i].lr)));
      });
    }
  }
  return count;
}

}  // namespace outrigger::engine
