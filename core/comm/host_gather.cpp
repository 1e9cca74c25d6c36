// SPDX-License-Identifier: Apache-2.0
// HostCommunicator: what every rank has, gathered or merged, through the staging area.
#include <algorithm>
#include <vector>

#include "core/comm/copy.h"
#include "core/comm/host.h"
#include "core/comm/operation.h"
#include "core/comm/parts.h"

namespace outrigger::comm {

// A part at a time. Of a large result each rank reads its own bytes once: they go to its result
// past the caches and, beside that, into the staging area, which stays in them. So all that crosses
// the memory bus is what a copy moves without reading the destination, and one rank's bytes less.
void HostCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                  std::string_view label) {
  constexpr size_t kStreamedBytes = size_t{8} << 20;  // a result that no cache is likely to hold
  require_usable();
  require_room(label, mine.size(), all.size(), world_);
  const size_t chunk = world_ == 1 ? mine.size() : ChannelBlock::staging_bytes(world_);
  const bool streams = all.size() >= kStreamedBytes;
  size_t done = 0;
  do {
    const size_t n = std::min(chunk, mine.size() - done);
    const std::byte* from = mine.data() + done;
    const auto place = [&](int32_t r) {
      return all.data() + static_cast<size_t>(r) * mine.size() + done;
    };
    const bool stages = world_ > 1 && !interrupted_;
    const bool fused = stages && streams && done > 0;  // a mismatch leaves the result alone
    if (fused) {
      stream_bytes(place(rank_), from, n, staging(rank_, step_ + 1));
    } else if (stages) {
      copy_bytes(staging(rank_, step_ + 1), from, n);
    }
    if (done == 0) {
      begin(OperationKind::all_gather, mine.size(), label);
    } else {
      step();
    }
    if (!fused) copy_bytes(place(rank_), from, n);
    for (int32_t i = 1; i < world_; i++) {  // each rank starts with another peer
      const int32_t r = (rank_ + i) % world_;
      if (streams) {
        stream_bytes(place(r), staging(r, step_), n);
      } else {
        copy_bytes(place(r), staging(r, step_), n);
      }
    }
    done += n;
  } while (done < mine.size());
}

// Every rank stages its stream at the same time, a part of the staging area's size at a time.
void HostCommunicator::all_gather_parts(std::span<const Part> parts, std::string_view label) {
  require_usable();
  const PartsSummary summary = summarize(parts, world_, label);
  // Equal steps: a small last one would only wait for the one before it to be read.
  const size_t longest = summary.longest(), most = ChannelBlock::staging_bytes(world_);
  const size_t steps = std::max(size_t{1}, (longest + most - 1) / most);
  const size_t chunk = (longest + steps * kLine - 1) / (steps * kLine) * kLine;  // at most `most`
  std::vector<PartsCursor> cursors;
  for (int32_t r = 0; r < world_; r++) cursors.emplace_back(parts, r);
  const auto size_of = [&](int32_t r, size_t done) {
    const size_t all = summary.by_rank[static_cast<size_t>(r)];
    return all > done ? std::min(chunk, all - done) : 0;
  };
  size_t done = 0;
  do {
    PartsCursor& mine = cursors[static_cast<size_t>(rank_)];
    if (world_ > 1 && !interrupted_) {
      mine.copy_to(staging(rank_, step_ + 1), size_of(rank_, done));
    } else {
      mine.skip(size_of(rank_, done));
    }
    if (done == 0) {
      begin(OperationKind::all_gather_parts, summary.bytes, label,
            static_cast<int32_t>(parts.size()), summary.hash);
    } else {
      step();
    }
    for (int32_t i = 1; i < world_; i++) {  // each rank starts with another peer
      const int32_t r = (rank_ + i) % world_;
      cursors[static_cast<size_t>(r)].copy_from(staging(r, step_), size_of(r, done));
    }
    done += chunk;
  } while (world_ > 1 && done < longest);
}

void HostCommunicator::combine(std::span<std::byte> value, const Merge& merge,
                               std::string_view label) {
  require_usable();
  const size_t chunk =
      world_ == 1 ? value.size() : ChannelBlock::staging_bytes(world_) / kMergeUnit * kMergeUnit;
  size_t done = 0;
  do {
    const auto part = value.subspan(done, std::min(chunk, value.size() - done));
    if (world_ > 1 && !interrupted_) {
      copy_bytes(staging(rank_, step_ + 1), part.data(), part.size());
    }
    if (done == 0) {
      begin(OperationKind::combine, value.size(), label);
    } else {
      step();
    }
    if (world_ > 1) copy_bytes(part.data(), staging(0, step_), part.size());
    for (int32_t r = 1; r < world_; r++) merge(done, part, {staging(r, step_), part.size()});
    done += part.size();
  } while (done < value.size());
}

}  // namespace outrigger::comm
