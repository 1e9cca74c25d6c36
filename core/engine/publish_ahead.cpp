// SPDX-License-Identifier: Apache-2.0
#include "core/engine/publish_ahead.h"

namespace outrigger::engine {

void PublishAhead::begin(std::span<const layout::Piece> pieces) {
  left_.assign(layout_.buckets().size(), 0);
  begun_ = left_.size();
  for (const layout::Piece& piece : pieces) {
    left_[static_cast<size_t>(layout_.position(piece.parameter).bucket)] += piece.count;
  }
  // A bucket comes as a whole, with what this step leaves as it is.
  std::vector<layout::Piece> all;
  for (const layout::Bucket& bucket : layout_.buckets()) {
    for (const int64_t root : bucket.parameters) {
      all.push_back({.parameter = root, .count = model_.at(root).count});
    }
  }
  new_weights_.expect(all);
  begin_complete();
}

void PublishAhead::updated(const layout::Piece& piece) {
  left_[static_cast<size_t>(layout_.position(piece.parameter).bucket)] -= piece.count;
  begin_complete();
}

void PublishAhead::begin_complete() {
  while (begun_ > 0 && left_[begun_ - 1] == 0) {
    const layout::Bucket& bucket = layout_.buckets()[--begun_];
    published_.begin(bucket, [this, &bucket] {
      for (const int64_t root : bucket.parameters) new_weights_.add(root, model_.at(root).count);
    });
  }
}

void PublishAhead::finish() { published_.wait_all(); }

}  // namespace outrigger::engine
