// SPDX-License-Identifier: Apache-2.0
#include "core/engine/start.h"

#include <algorithm>
#include <numeric>

#include "kernels/composed.h"

namespace outrigger::engine {
namespace {

// Values are written kInitialElements at a time, counted from element 0: the most of [begin, end)
// at once.
int64_t most_at_once(int64_t begin, int64_t end) {
  const int64_t next = (begin + kInitialElements - 1) / kInitialElements * kInitialElements;
  if (next >= end) return end - begin;
  return std::max(next - begin, std::min(end - next, kInitialElements));
}

// Host memory in which values are rounded on their way to a device (Values::store writes them).
// piece: this rank's of a trainable root, or null.
int64_t rounded_at_once(const layout::Parameter& root, const Plan& plan, const layout::Piece* piece,
                        bool from_rank0) {
  if (plan.published_in == Plan::Space::host) return 0;  // and so are masters
  const bool shows_all = plan.home == Home::replica || !root.trainable;
  const int64_t begin = piece == nullptr ? 0 : piece->first;
  const int64_t end = piece == nullptr ? 0 : begin + piece->count;
  const int64_t own =
      from_rank0 || shows_all ? most_at_once(begin, end) : most_at_once(0, end - begin);
  const int64_t others =
      shows_all ? std::max(most_at_once(0, begin), most_at_once(end, root.count)) : 0;
  const Side& side = plan.side_of(root.root);
  const bool master_there = side.separate_master && side.back == Plan::Space::device;
  const kernels::Format master = plan.master_format();
  const int64_t whole = engine::bytes_of(own, master) + kernels::beside_bytes_of(own, master);
  return std::max(engine::bytes_of(std::max(own, others), plan.compute()),
                  master_there ? whole : 0);
}

}  // namespace

StartPeaks peaks_of_start(const layout::Model& model, const layout::Layout& layout,
                          const Plan& plan, int32_t slice, const Start& start) {
  int64_t held = std::accumulate(start.held.begin(), start.held.end(), int64_t{0});
  const std::vector<layout::Piece> pieces = plan.pieces(model, layout, slice);
  std::vector<const layout::Piece*> piece_of(static_cast<size_t>(model.size()), nullptr);
  for (const layout::Piece& piece : pieces) {
    piece_of[static_cast<size_t>(piece.parameter)] = piece.count > 0 ? &piece : nullptr;
  }
  int64_t there = plan.host_bytes() - plan.untouched;
  StartPeaks peaks{held, 0, std::max(held, held + there), held + there};
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    const auto i = static_cast<size_t>(id);
    if (p.root != id) continue;
    const bool has_copy = start.in_commit && start.held[i] > 0;
    int64_t on_the_way = has_copy ? 0 : std::min(p.count, kInitialElements) * 4;
    if (!start.whole.empty()) on_the_way += start.whole[i] - start.held[i];
    const int64_t rounded = rounded_at_once(p, plan, piece_of[i], start.from_rank0);
    there += plan.touched_by(model, id, piece_of[i]);  // by its first value
    peaks.initial = std::max(peaks.initial, held + on_the_way);
    peaks.acquired = std::max(peaks.acquired, rounded);
    peaks.total = std::max(peaks.total, there + held + on_the_way + rounded);
    held -= start.held[i];
  }
  return peaks;
}

}  // namespace outrigger::engine
