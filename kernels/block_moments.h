// SPDX-License-Identifier: Apache-2.0
// An update whose moments are stored in blocks: leaf by leaf they become float32 in the first-level
// cache, are updated there, and go back.
#pragma once

#include <algorithm>

#include "kernels/adam_part.h"

namespace outrigger::kernels {

[[nodiscard]] inline bool has_blocks(const Adam& a) {
  return is_block(a.exp_avg_format) || is_block(a.exp_avg_sq_format);
}

// update, unpack and pack: one instruction set's functions for float32 moments and for blocks.
template <class Update, class Unpack, class Pack>
UpdateCount update_by_blocks(const Adam& whole, const Update& update, const Unpack& unpack,
                             const Pack& pack) {
  alignas(64) float exp_avg[kLeaf], exp_avg_sq[kLeaf];
  UpdateCount total;
  for (int64_t first = 0; first < whole.count; first += kLeaf) {
    Adam leaf = part_of(whole, first, std::min(kLeaf, whole.count - first));
    void* const blocks = leaf.exp_avg;
    void* const blocks_sq = leaf.exp_avg_sq;
    const auto open = [&](float* values, void*& data, Format& format) {
      if (!is_block(format)) return;
      unpack(values, data, format, leaf.count);
      data = values;
      format = Format::float32;
    };
    open(exp_avg, leaf.exp_avg, leaf.exp_avg_format);
    open(exp_avg_sq, leaf.exp_avg_sq, leaf.exp_avg_sq_format);
    add(total, update(leaf));
    const auto close = [&](const float* values, void* data, Format format, Rounding rounding,
                           uint64_t key) {
      if (!is_block(format)) return;
      pack(data, format, values, leaf.count,
           BlockRounding{rounding, key, leaf.random.first_element, leaf.random.step});
    };
    close(exp_avg, blocks, whole.exp_avg_format, whole.exp_avg_rounding, whole.random.exp_avg_key);
    close(exp_avg_sq, blocks_sq, whole.exp_avg_sq_format, whole.exp_avg_sq_rounding,
          whole.random.exp_avg_sq_key);
  }
  return total;
}

}  // namespace outrigger::kernels
