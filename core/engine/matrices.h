// SPDX-License-Identifier: Apache-2.0
// Muon over ranks: directions of a matrix come from the ranks that have its pieces, one rank
// orthogonalises it, and every rank updates its pieces by the result.
//
// Matrices go in rounds of one for each rank, those of similar work together, so that all ranks
// work at the same time on about the same amount. A rank needs room for one matrix that is on its
// way and one that it orthogonalises, however many there are. On a device directions go to other
// ranks, and come from them, by way of host memory.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/device/device.h"
#include "core/engine/plan.h"
#include "core/memory/block.h"
#include "core/memory/pinned.h"
#include "core/optimizer/newton_schulz.h"

namespace outrigger::engine {

class Matrices {
 public:
  // Of a side, whose states are the device's.
  Matrices(comm::Group& comm, device::Device& device, const layout::Model& model,
           const layout::Layout& layout, const Plan& plan, const Side& side, config::Pin pin,
           memory::Ledger& ledger);

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
  void take(int64_t root);
  // Between a matrix of the device and what ranks exchange, in the own stream's order.
  void to_exchange(const float* matrix, int64_t first, int64_t count);
  void from_exchange(float* matrix, int64_t first, int64_t count);
  [[nodiscard]] int64_t work(int64_t root) const;

  comm::Group* comm_;
  device::Device* device_;
  const layout::Model* model_;
  const layout::Layout* layout_;
  bool sharded_;
  memory::Block memory_, staging_;
  memory::Pinned pinned_;
  optimizer::NewtonSchulz newton_schulz_;
};

}  // namespace outrigger::engine
