// SPDX-License-Identifier: Apache-2.0
#include "core/comm/shape.h"

#include "kernels/kernels.h"

namespace outrigger::comm {

Shape mesh_shape(int32_t rank, int32_t ranks, int32_t shard, bool divided) {
  Shape shape;
  shape.groups = ranks / shard;
  const int32_t place = rank % shard;
  shape.levels = divided ? Levels::divided : Levels::mesh;
  shape.slices = divided ? ranks : shard;
  shape.slice = divided ? place * shape.groups + rank / shard : place;
  shape.counts = divided || rank < shard;
  return shape;
}

int64_t mesh_sums(int64_t slice, int32_t groups) {
  const int64_t part = (slice + groups - 1) / groups;
  return kernels::in_leaves(part) * groups;
}

int64_t footprint_of(const Shape& shape, const Traffic& traffic) {
  using kernels::Format;
  const bool alone = shape.slices == 1 && shape.groups == 1;
  const auto slices_of = [&](int64_t number, Format format) {
    return number * kernels::bytes_of(traffic.slice, format);
  };
  // What ranks of other memory give is received.
  const auto with_received = [&](int64_t bytes) { return shape.shares_memory ? bytes : 2 * bytes; };
  const int64_t received = shape.shares_memory ? 0 : traffic.bytes;
  const int64_t sums = slices_of(shape.groups, Format::float32);
  const int64_t blocks = slices_of(shape.groups, Format::block8);
  switch (shape.levels) {
    case Levels::one:
      return !traffic.in_blocks || alone ? received
                                         : with_received(slices_of(shape.slices, Format::block8));
    case Levels::hosts:  // sums of each slice that ranks at this place own: made here, and received
      return traffic.in_blocks ? sums + 2 * blocks : 2 * sums;
    case Levels::divided:  // the same, and what came from the ranks of the group
      return received + (traffic.in_blocks ? sums + with_received(blocks) : with_received(sums));
    case Levels::mesh: {  // of this group, of all, and received
      const int64_t all = mesh_sums(traffic.slice, shape.groups);
      const int64_t parts = kernels::bytes_of(all, Format::float32);
      return received + parts +
             (traffic.in_blocks ? parts + with_received(kernels::bytes_of(all, Format::block8))
                                : with_received(parts));
    }
  }
  return 0;
}

}  // namespace outrigger::comm
