// SPDX-License-Identifier: Apache-2.0
// Muon over ranks: directions of a matrix come from the ranks that have its pieces, one rank
// orthogonalises it, and every rank updates its pieces by the result.
//
// Matrices go in rounds of one for each rank, those of similar work together, so that all ranks
// work at the same time on about the same amount. A rank needs room for one matrix that is on its
// way and one that it orthogonalises, however many there are.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/device/host.h"
#include "core/engine/plan.h"
#include "core/memory/block.h"
#include "core/optimizer/newton_schulz.h"

namespace outrigger::engine {

class Matrices {
 public:
  Matrices(comm::Group& comm, device::Host& host, const layout::Model& model,
           const layout::Layout& layout, const Plan& plan, memory::Ledger& ledger);

  struct Matrix {
    int64_t root = 0;
    double lr = 0;  // of the orthogonal direction
  };
  using Update = std::function<kernels::UpdateCount(const kernels::Update&)>;
  // Calls the body with this rank's piece of a root, as for kernels::muon_direction; or not, if it
  // has none.
  using OfPiece = std::function<void(const kernels::Update&)>;
  using WithPiece = std::function<void(int64_t root, const OfPiece& body)>;
  // Collective; every rank has the same matrices. update: runs an update of a piece.
  kernels::UpdateCount update(std::vector<Matrix> matrices, int32_t steps,
                              const WithPiece& with_piece, const Update& update);

 private:
  void gather(int64_t root, const WithPiece& with_piece);
  [[nodiscard]] int64_t work(int64_t root) const;

  comm::Group* comm_;
  device::Host* host_;
  const layout::Model* model_;
  const layout::Layout* layout_;
  bool sharded_;
  memory::Block memory_;
  optimizer::NewtonSchulz newton_schulz_;
};

}  // namespace outrigger::engine
