// SPDX-License-Identifier: Apache-2.0
// Sum of squares, vector form of reference/norm.h. Whole leaves here, the last by the oracle.
#include "kernels/reference/norm.h"
#include <cstring>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

inline constexpr int64_t kStreams = 4;

void sum_of_squares(NormSum& norm, const void* data, Format format, int64_t count,
                    int64_t first_index) {
  int64_t done = 0;
  with_format(format, [&](auto f) HWY_ATTR {
    using From = decltype(f);
    const auto* x = static_cast<const typename From::Storage*>(data);
    const auto add_leaf = [&](const auto* leaf, int64_t index) HWY_ATTR {
      LaneSums lanes;
      for (int64_t row = 0; row < kLeaf; row += kRow) {
        for (int pair = 0; pair < kPairsPerRow; ++pair) {
          const auto* next = leaf + row + pair * kPair;
          prefetch_ahead(next);
          lanes.add(pair, From::load(next));
        }
      }
      add_leaf_sum(norm, lanes.sum(), leaf, format, index);
    };
    const auto add_leaf_at = [&](int64_t at) HWY_ATTR { add_leaf(x + at, first_index + at); };
    // One stream alone leaves memory idle, and leaves may come in any order.
    const int64_t part = count / (kStreams * kLeaf) * kLeaf;
    for (; done < part; done += kLeaf) {
      for (int64_t stream = 0; stream < kStreams; ++stream) add_leaf_at(done + stream * part);
    }
    for (done = kStreams * part; done + kLeaf <= count; done += kLeaf) add_leaf_at(done);
    if (done < count) {  // zeros add nothing
      alignas(64) typename From::Storage padded[kLeaf] = {};
      std::memcpy(padded, x + done, static_cast<size_t>(count - done) * sizeof padded[0]);
      add_leaf(padded, first_index + done);
      done = count;
    }
  });
  if (done < count) {
    const auto offset = static_cast<size_t>(done) * size_of(format);
    reference::sum_of_squares(norm, static_cast<const char*>(data) + offset, format, count - done,
                              first_index + done);
  }
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(SumOfSquaresFunction, sum_of_squares_for, sum_of_squares)
}  // namespace outrigger::kernels::cpu
#endif
