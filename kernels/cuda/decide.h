// SPDX-License-Identifier: Apache-2.0
// What a step decides, on the device: from the exact sums of its folds to one block in its memory,
// by reference/decide.h. The updates behind it read the block, and the host hears of it later.
#pragma once

#include "kernels/cuda/update.h"
#include "kernels/reference/decide.h"

namespace outrigger::kernels::cuda {

// What folds leave of one run of gradients.
struct SumBlock {
  NormBlock now;            // of the last fold
  uint64_t before = kNone;  // as now.first: of the folds before it in the same window
};

struct Decide {
  double mean = 1, clipping = 0;
  int32_t skip = 0;            // what the host has decided already
  int32_t skip_nonfinite = 0;  // becomes `skip` where an element is not finite
};

struct Decided {
  uint64_t limbs[reference::kLimbs] = {};
  int64_t nonfinite = 0, first_nonfinite = -1;
  int32_t first_rank = -1, reserved0 = 0;
  double norm = 0, clip = 1;
  float gradient_factor = 1;
  int32_t skip = 0;   // not 0: no update
  CountBlock counts;  // of the updates behind it
};

// The first element of the two; of the same one, the lowest rank that is named.
OTR_DEVICE uint64_t first_of_two(uint64_t a, uint64_t b) {
  if (a >> 16 != b >> 16) return a < b ? a : b;
  const uint64_t of_a = a & 0xffff, of_b = b & 0xffff;
  return of_a == 0 || (of_b != 0 && of_b < of_a) ? b : a;
}

// Before a fold adds to it; add: as the fold does to its accumulator.
OTR_DEVICE void begin_sum(SumBlock& sum, bool add) {
  sum.before = add ? first_of_two(sum.before, sum.now.first) : kNone;
  for (uint64_t& digit : sum.now.digits) digit = 0;
  sum.now.nonfinite = 0;
  sum.now.first = kNone;
}

// A warp's; total: its shared memory. The sums lie `stride` bytes apart.
OTR_DEVICE void decide(const Decide& how, const unsigned char* sums, int64_t stride, int64_t count,
                       NormBlock& total, Decided& out) {
  each_lane([&](int lane) {
    uint64_t mine = lane > kDigits ? kNone : 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto& sum = *reinterpret_cast<const SumBlock*>(sums + i * stride);
      if (lane < kDigits) mine += sum.now.digits[lane];
      if (lane == kDigits) mine += sum.now.nonfinite;
      if (lane == kDigits + 1) mine = first_of_two(mine, first_of_two(sum.before, sum.now.first));
    }
    if (lane < kDigits) total.digits[lane] = mine;
    if (lane == kDigits) total.nonfinite = mine;
    if (lane == kDigits + 1) total.first = mine;
  });
  sync();
  each_lane([&](int lane) {
    if (lane != 0) return;
    carry(total, out.limbs);
    out.nonfinite = static_cast<int64_t>(total.nonfinite);
    out.first_nonfinite = index_of(total);
    out.first_rank = rank_of(total);
    out.norm = reference::norm_of(out.limbs, out.nonfinite) * how.mean;
    out.clip = out.nonfinite > 0 ? 1 : reference::clip_coefficient(out.norm, how.clipping);
    out.gradient_factor = static_cast<float>(how.mean * out.clip);
    out.skip = how.skip == 0 && out.nonfinite > 0 ? how.skip_nonfinite : how.skip;
    out.counts.updates = out.counts.vanished = 0;
  });
}

// The scalars of an update by a decision that does not skip.
OTR_DEVICE UpdateScalars decided_scalars(const Update& u, const Decided& decided) {
  UpdateScalars scalars = u.scalars;
  scalars.gradient_factor = decided.gradient_factor;
  return scalars;
}

}  // namespace outrigger::kernels::cuda
