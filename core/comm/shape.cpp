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
  const int64_t received = shape.shares_memory ? 0 : traffic.bytes;
  const int64_t sums = kernels::bytes_of(traffic.slice * shape.groups, Format::float32);
  switch (shape.levels) {
    case Levels::one:
      return received;
    case Levels::hosts:  // sums of each slice that ranks at this place own: made here, and received
      return 2 * sums;
    case Levels::divided:  // the same, and what came from the ranks of the group
      return received + (shape.shares_memory ? 1 : 2) * sums;
    case Levels::mesh: {  // of this group, of all, and received
      const int64_t parts = mesh_sums(traffic.slice, shape.groups);
      return received + kernels::bytes_of((shape.shares_memory ? 2 : 3) * parts, Format::float32);
    }
  }
  return 0;
}

}  // namespace outrigger::comm
