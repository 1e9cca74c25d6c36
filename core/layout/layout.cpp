// SPDX-License-Identifier: Apache-2.0
#include "core/layout/layout.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace outrigger::layout {
namespace {

using kernels::kLeaf;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Runs of trainable roots, the last declared first; each run ascending.
std::vector<std::vector<int64_t>> cut(const Model& model, const std::vector<Position>& positions,
                                      int64_t bucket_elements, int64_t apart) {
  std::vector<std::vector<int64_t>> runs;
  int64_t filled = 0;
  for (int64_t id = model.size(); id-- > 0;) {
    const Parameter& p = model.at(id);
    if (p.root != id || !p.trainable || p.count == 0) continue;
    const int64_t padded = positions[static_cast<size_t>(id)].padded;
    const bool closes = !runs.empty() && id < apart && runs.back().back() >= apart;
    if (runs.empty() || closes || filled + padded > bucket_elements) {
      runs.emplace_back();
      filled = 0;
    }
    runs.back().push_back(id);
    filled += padded;
  }
  for (auto& run : runs) std::reverse(run.begin(), run.end());
  return runs;
}

}  // namespace

Layout::Layout(const Model& model, int32_t world, int64_t bucket_elements, int64_t apart)
    : world_(world), apart_(apart), positions_(static_cast<size_t>(model.size())) {
  for (int64_t id = 0; id < model.size(); ++id) {
    if (model.at(id).root == id)
      positions_[static_cast<size_t>(id)].padded = kernels::in_leaves(model.at(id).count);
  }
  const auto runs = cut(model, positions_, bucket_elements, apart);
  buckets_.resize(runs.size());
  for (size_t b = runs.size(); b-- > 0;) {  // the last bucket holds the first parameters
    Bucket& bucket = buckets_[b];
    bucket.parameters = runs[b];
    bucket.begin = trainable_;
    for (const int64_t id : bucket.parameters) {
      Position& position = positions_[static_cast<size_t>(id)];
      position.flat = bucket.begin + bucket.elements;
      position.bucket = static_cast<int64_t>(b);
      bucket.elements += position.padded;
    }
    bucket.elements = round_up(bucket.elements, world * kLeaf);
    bucket.slice = bucket.elements / world;
    bucket.shard = trainable_ / world;
    trainable_ += bucket.elements;
    largest_bucket_ = std::max(largest_bucket_, bucket.elements);
  }
  flat_ = trainable_;
  for (int64_t id = 0; id < model.size(); ++id) {
    Position& position = positions_[static_cast<size_t>(id)];
    if (model.at(id).root != id || position.bucket >= 0) continue;
    position.flat = flat_;  // frozen or empty
    flat_ += position.padded;
  }
}

Layout Layout::in_slices(int32_t slices) const {
  Layout coarser = *this;
  coarser.world_ = slices;
  for (Bucket& bucket : coarser.buckets_) {
    bucket.slice = bucket.elements / slices;
    bucket.shard = bucket.begin / slices;
  }
  return coarser;
}

Piece Layout::intersect(const Model& model, const Bucket& bucket, int64_t id, int32_t rank) const {
  const int64_t begin = bucket.begin + rank * bucket.slice;
  const int64_t flat = position(id).flat;
  const int64_t from = std::max(begin, flat);
  const int64_t to = std::min(begin + bucket.slice, flat + model.at(id).count);
  return {id, from - flat, to - from, from, bucket.shard + from - begin};
}

std::vector<Piece> Layout::pieces_of_rank(const Model& model, int32_t rank) const {
  std::vector<Piece> pieces;
  for (size_t b = buckets_.size(); b-- > 0;) {
    for (const int64_t id : buckets_[b].parameters) {
      const Piece piece = intersect(model, buckets_[b], id, rank);
      if (piece.count > 0) pieces.push_back(piece);
    }
  }
  return pieces;
}

std::optional<Piece> Layout::piece(const Model& model, int64_t root, int32_t rank) const {
  if (position(root).bucket < 0) return {};
  const Piece piece = intersect(model, bucket(position(root).bucket), root, rank);
  return piece.count > 0 ? std::optional(piece) : std::nullopt;
}

std::vector<Layout::Owned> Layout::owners(const Model& model, int64_t root) const {
  std::vector<Owned> owners;
  if (position(root).bucket < 0) return owners;
  const Bucket& own = bucket(position(root).bucket);
  const int64_t begin = position(root).flat - own.begin, count = model.at(root).count;
  if (count == 0) return owners;
  const auto last = static_cast<int32_t>((begin + count - 1) / own.slice);
  for (auto rank = static_cast<int32_t>(begin / own.slice); rank <= last; ++rank) {
    owners.push_back({rank, intersect(model, own, root, rank)});
  }
  return owners;
}

std::vector<Piece> Layout::pieces_of_all(const Model& model) const {
  std::vector<Piece> pieces;
  for (size_t b = buckets_.size(); b-- > 0;) {
    for (const int64_t id : buckets_[b].parameters) {
      pieces.push_back({id, 0, model.at(id).count, position(id).flat, position(id).flat});
    }
  }
  return pieces;
}

int64_t Layout::parameter_at(int64_t flat) const {
  for (const Bucket& bucket : buckets_) {
    if (flat < bucket.begin || flat >= bucket.begin + bucket.elements) continue;
    for (const int64_t id : bucket.parameters) {
      if (flat < position(id).flat + position(id).padded) return id;
    }
    return bucket.parameters.back();
  }
  return -1;
}

}  // namespace outrigger::layout
