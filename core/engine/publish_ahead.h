// SPDX-License-Identifier: Apache-2.0
// Publishing beside the updates, bucket by bucket, the first parameters first. Where it moves
// parameters, a bucket goes to the other ranks as soon as this one has updated its slice; where
// ranks share them, each says how far it has come. Who waits for a parameter has it when its bucket
// is there, or all have updated theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/new_weights.h"
#include "core/engine/published.h"
#include "core/layout/layout.h"

namespace outrigger::engine {

class PublishAhead {
 public:
  // published goes ahead, or has marks; new_weights and this outlive its exchange. mine: this
  // rank's pieces.
  PublishAhead(const layout::Model& model, const layout::Layout& layout, Published& published,
               Pieces mine, NewWeights& new_weights);

  // A step in which this rank updates these pieces. Of all ranks.
  void begin(std::span<const layout::Piece> pieces);
  void updated(int64_t root, int64_t elements);
  // All pieces are updated. Returns when all ranks' updates are here.
  void finish();

 private:
  void begin_complete();
  void expect_all_moved();

  const layout::Model& model_;
  const layout::Layout& layout_;
  Published& published_;
  const Pieces mine_;
  NewWeights& new_weights_;
  // Elements that are not updated yet, by bucket. Buckets are numbered from the last parameter, and
  // go in the order of the parameters: those below `begun_` have not begun.
  std::vector<int64_t> left_;
  size_t begun_ = 0;
  uint64_t marked_ = 0;          // in the steps before
  std::vector<uint64_t> needs_;  // by root: how many of the first buckets
};

}  // namespace outrigger::engine
