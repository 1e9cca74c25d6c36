// SPDX-License-Identifier: Apache-2.0
#include "core/engine/publish_ahead.h"

#include <utility>

namespace outrigger::engine {

PublishAhead::PublishAhead(const layout::Model& model, const layout::Layout& layout,
                           Published& published, Pieces mine, NewWeights& new_weights)
    : model_(model),
      layout_(layout),
      published_(published),
      mine_(std::move(mine)),
      new_weights_(new_weights),
      needs_(static_cast<size_t>(model.size()), 0) {
  const size_t buckets = layout.buckets().size();
  for (size_t b = 0; b < buckets; ++b) {
    for (const int64_t root : layout.buckets()[b].parameters) {
      needs_[static_cast<size_t>(root)] = buckets - b;
    }
  }
}

void PublishAhead::begin(std::span<const layout::Piece> pieces) {
  left_.assign(layout_.buckets().size(), 0);
  begun_ = left_.size();
  for (const layout::Piece& piece : pieces) {
    left_[static_cast<size_t>(layout_.position(piece.parameter).bucket)] += piece.count;
  }
  if (const SharedMarks* const marks = published_.marks()) {
    marked_ = marks->mine();  // as all ranks, which have made the same steps
    new_weights_.expect(needs_, [marks, before = marked_] { return marks->all() - before; });
  } else {
    expect_all_moved();
  }
  begin_complete();
}

// A bucket comes as a whole, with what this step leaves as it is.
void PublishAhead::expect_all_moved() {
  std::vector<layout::Piece> all;
  for (const layout::Bucket& bucket : layout_.buckets()) {
    for (const int64_t root : bucket.parameters) {
      all.push_back({.parameter = root, .count = model_.at(root).count});
    }
  }
  new_weights_.expect(all);
}

void PublishAhead::updated(int64_t root, int64_t elements) {
  left_[static_cast<size_t>(layout_.position(root).bucket)] -= elements;
  begin_complete();
}

void PublishAhead::begin_complete() {
  while (begun_ > 0 && left_[begun_ - 1] == 0) {
    const layout::Bucket& bucket = layout_.buckets()[--begun_];
    if (published_.marks() != nullptr) {
      published_.marks()->set(marked_ + left_.size() - begun_);
      continue;
    }
    published_.begin(bucket, mine_, [this, &bucket] {
      for (const int64_t root : bucket.parameters) new_weights_.add(root, model_.at(root).count);
    });
  }
}

void PublishAhead::finish() {
  if (published_.goes_ahead()) published_.wait_all();
}

}  // namespace outrigger::engine
