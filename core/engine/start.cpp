// SPDX-License-Identifier: Apache-2.0
#include "core/engine/start.h"

#include <algorithm>
#include <numeric>

namespace outrigger::engine {

StartPeaks peaks_of_start(const layout::Model& model, const layout::Layout& layout,
                          const Plan& plan, int32_t slice, const Start& start) {
  int64_t held = std::accumulate(start.held.begin(), start.held.end(), int64_t{0});
  std::vector<int64_t> touched(static_cast<size_t>(model.size()), 0);  // by a root's first value
  for (const layout::Piece& piece : plan.pieces(model, layout, slice)) {
    touched[static_cast<size_t>(piece.parameter)] = plan.touched_by(model, piece.parameter, &piece);
  }
  int64_t there = plan.host_bytes() - plan.untouched;
  StartPeaks peaks{held, std::max(held, held + there), held + there};
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    const auto i = static_cast<size_t>(id);
    if (p.root != id) continue;
    if (!p.trainable) touched[i] = plan.touched_by(model, id, nullptr);
    const bool has_copy = start.in_commit && start.held[i] > 0;
    int64_t on_the_way = has_copy ? 0 : std::min(p.count, kInitialElements) * 4;
    if (!start.whole.empty()) on_the_way += start.whole[i] - start.held[i];
    there += touched[i];
    peaks.initial = std::max(peaks.initial, held + on_the_way);
    peaks.total = std::max(peaks.total, there + held + on_the_way);
    held -= start.held[i];
  }
  return peaks;
}

}  // namespace outrigger::engine
