// SPDX-License-Identifier: Apache-2.0
// What an update leases at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/layout/layout.h"
#include "kernels/update_part.h"

namespace outrigger::engine {

// Pieces in order, in runs of at most `room` elements: where they are more, cut into parts.
class LeasedRuns {
 public:
  LeasedRuns(std::span<const layout::Piece> pieces, int64_t room) {
    int64_t elements = 0;
    for (const layout::Piece& piece : pieces) elements += kernels::in_leaves(piece.count);
    if (elements <= room) {
      runs_.push_back(pieces);
    } else {
      cut(pieces, room);
    }
  }
  LeasedRuns(const LeasedRuns&) = delete;
  LeasedRuns& operator=(const LeasedRuns&) = delete;
  [[nodiscard]] const std::vector<std::span<const layout::Piece>>& all() const { return runs_; }

 private:
  void cut(std::span<const layout::Piece> pieces, int64_t room) {
    std::vector<size_t> ends;
    int64_t filled = 0;
    for (const layout::Piece& piece : pieces) {
      for (int64_t first = 0; first < piece.count;) {
        if (filled >= room) {
          ends.push_back(parts_.size());
          filled = 0;
        }
        const int64_t n = std::min(piece.count - first, room - filled);
        parts_.push_back(layout::part_of(piece, first, n));
        filled += kernels::in_leaves(n);
        first += n;
      }
    }
    ends.push_back(parts_.size());
    size_t begin = 0;
    for (const size_t end : ends) {
      runs_.emplace_back(std::span(parts_).subspan(begin, end - begin));
      begin = end;
    }
  }
  std::vector<layout::Piece> parts_;
  std::vector<std::span<const layout::Piece>> runs_;
};

}  // namespace outrigger::engine
