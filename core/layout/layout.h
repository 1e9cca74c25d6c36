// SPDX-License-Identifier: Apache-2.0
// Where every element lives: flat space, buckets, slices, pieces.
//
// The flat space holds all trainable parameters in order of declaration, then the frozen ones; each
// begins at a multiple of a leaf (256 elements). Buckets are consecutive runs of whole trainable
// parameters, cut from the end, because gradients arrive last parameter first: bucket 0 holds the
// last parameters. A bucket's length is a multiple of world × leaf, and rank r owns its r-th part:
// a slice. All slices of a rank in flat order are its shard.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/layout/model.h"

namespace outrigger::layout {

struct Bucket {
  int64_t begin = 0;                // in the flat space
  int64_t elements = 0;             // with padding
  int64_t slice = 0;                // elements of one rank
  int64_t shard = 0;                // where a rank's slice begins in its shard
  std::vector<int64_t> parameters;  // roots, ascending
};

// A run of elements of one parameter that one rank owns.
struct Piece {
  int64_t parameter = 0;
  int64_t first = 0;  // element in the parameter; a multiple of a leaf
  int64_t count = 0;  // elements, without padding
  int64_t flat = 0;   // in the flat space
  int64_t shard = 0;  // in the shard
};

// Its elements [first, first + count), counted from its own first.
[[nodiscard]] inline Piece part_of(const Piece& p, int64_t first, int64_t count) {
  return {p.parameter, p.first + first, count, p.flat + first, p.shard + first};
}

struct Position {
  int64_t flat = -1;    // of element 0; −1 for aliases
  int64_t padded = 0;   // elements up to the next parameter's multiple of a leaf
  int64_t bucket = -1;  // −1 for frozen parameters
};

class Layout {
 public:
  // bucket_elements: a bucket is closed before it would exceed this; a larger parameter goes alone.
  // apart: parameters with a lower id share no bucket with the others.
  Layout(const Model& model, int32_t world, int64_t bucket_elements, int64_t apart = 0);

  // The same buckets in fewer slices, of which so many divide the world.
  [[nodiscard]] Layout in_slices(int32_t slices) const;

  [[nodiscard]] int32_t world() const { return world_; }
  [[nodiscard]] int64_t apart() const { return apart_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] const Bucket& bucket(int64_t index) const {
    return buckets_[static_cast<size_t>(index)];
  }
  [[nodiscard]] int64_t largest_bucket() const { return largest_bucket_; }
  [[nodiscard]] const Position& position(int64_t root) const {
    return positions_[static_cast<size_t>(root)];
  }

  [[nodiscard]] int64_t parameters() const { return static_cast<int64_t>(positions_.size()); }
  [[nodiscard]] int64_t trainable_elements() const { return trainable_; }  // flat [0, this), padded
  [[nodiscard]] int64_t flat_elements() const { return flat_; }
  [[nodiscard]] int64_t shard_elements() const { return trainable_ / world_; }

  // What a rank owns, in shard order; frozen parameters have no owner.
  [[nodiscard]] std::vector<Piece> pieces_of_rank(const Model& model, int32_t rank) const;
  // Everything, for states that are not sharded: Piece::shard is the flat offset.
  [[nodiscard]] std::vector<Piece> pieces_of_all(const Model& model) const;
  // A rank's part of one trainable root, if it has one.
  [[nodiscard]] std::optional<Piece> piece(const Model& model, int64_t root, int32_t rank) const;
  // Who owns what of one trainable root, in order.
  struct Owned {
    int32_t rank;
    Piece piece;
  };
  [[nodiscard]] std::vector<Owned> owners(const Model& model, int64_t root) const;
  // The trainable parameter whose elements (or padding) hold this flat index.
  [[nodiscard]] int64_t parameter_at(int64_t flat) const;

 private:
  // The part of a bucket's parameter in a rank's slice; count <= 0 if there is none.
  [[nodiscard]] Piece intersect(const Model& model, const Bucket& bucket, int64_t id,
                                int32_t rank) const;

  int32_t world_;
  int64_t apart_;
  std::vector<Bucket> buckets_;
  std::vector<Position> positions_;
  int64_t trainable_ = 0;
  int64_t flat_ = 0;
  int64_t largest_bucket_ = 0;
};

}  // namespace outrigger::layout
