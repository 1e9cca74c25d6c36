// SPDX-License-Identifier: Apache-2.0
// Publishing beside the updates, where it moves parameters between ranks: a bucket goes to the
// other ranks as soon as this one has updated its slice, the first parameters first, and who waits
// for a parameter has it when its bucket has come.
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
  // published goes ahead. new_weights outlives its exchange.
  PublishAhead(const layout::Model& model, const layout::Layout& layout, Published& published,
               NewWeights& new_weights)
      : model_(model), layout_(layout), published_(published), new_weights_(new_weights) {}

  // A step in which this rank updates these pieces. Of all ranks.
  void begin(std::span<const layout::Piece> pieces);
  void updated(const layout::Piece& piece);  // or a part of one
  // All pieces are updated. Returns when all ranks' updates are here.
  void finish();

 private:
  void begin_complete();

  const layout::Model& model_;
  const layout::Layout& layout_;
  Published& published_;
  NewWeights& new_weights_;
  // Elements that are not updated yet, by bucket. Buckets are numbered from the last parameter, and
  // go in the order of the parameters: those below `begun_` have not begun.
  std::vector<int64_t> left_;
  size_t begun_ = 0;
};

}  // namespace outrigger::engine
