// SPDX-License-Identifier: Apache-2.0
// A leaf's random 16-bit numbers (reference/philox.h): one Philox block in each 64-bit lane, whose
// low half holds a word and whose high half is ignored.

#if defined(OTR_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OTR_KERNELS_CPU_PHILOX_INL_H_
#undef OTR_KERNELS_CPU_PHILOX_INL_H_
#else
#define OTR_KERNELS_CPU_PHILOX_INL_H_
#endif

#include "kernels/cpu/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

using DU64 = hn::ScalableTag<uint64_t>;
using VU64 = hn::Vec<DU64>;

// The four words of as many blocks as a vector has 64-bit lanes.
struct Words {
  HWY_INLINE Words(uint64_t block, uint64_t step) {
    const DU64 d;
    x0 = hn::Iota(d, block);
    x1 = hn::ShiftRight<32>(x0);
    x2 = hn::Set(d, step);
    x3 = hn::Set(d, step >> 32);
  }
  VU64 x0, x1, x2, x3;
};

HWY_INLINE VU64 product(VU64 a, VU b) { return hn::MulEven(hn::BitCast(DU{}, a), b); }

HWY_INLINE void philox_round(Words& w, VU64 key0, VU64 key1) {
  const VU64 product0 = product(w.x0, hn::Set(DU{}, reference::kPhiloxMultiplier0));
  const VU64 product1 = product(w.x2, hn::Set(DU{}, reference::kPhiloxMultiplier1));
  w.x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), w.x1), key0);
  w.x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), w.x3), key1);
  w.x1 = product1;
  w.x3 = product0;
}

// A round waits for its products; independent blocks fill the wait. Four was the fastest of 1, 2
// and 4, on AVX2 too, where some of them spill.
inline constexpr int kBlocksAtOnce = 4;

// to[i] = random16(key, first_element + i, step) for one leaf; first_element is a multiple of 8.
inline HWY_NOINLINE void random_leaf(uint64_t key, uint64_t first_element, uint64_t step,
                                     uint16_t* to) {
  const DU64 d;
  constexpr uint64_t kBlocks = HWY_LANES(uint64_t);
  constexpr auto kElements = static_cast<int64_t>(kBlocks) * reference::kElementsPerBlock;
  static_assert(kLeaf % (kElements * kBlocksAtOnce) == 0);

  uint64_t block = first_element / reference::kElementsPerBlock;
  for (int64_t i = 0; i < kLeaf; i += kElements * kBlocksAtOnce) {
    Words words[kBlocksAtOnce] = {Words(block, step), Words(block + kBlocks, step),
                                  Words(block + 2 * kBlocks, step),
                                  Words(block + 3 * kBlocks, step)};
    block += kBlocksAtOnce * kBlocks;
    auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < reference::kPhiloxRounds; ++round) {
      const VU64 k0 = hn::Set(d, uint64_t{key0}), k1 = hn::Set(d, uint64_t{key1});
#pragma GCC unroll 4
      for (Words& w : words) philox_round(w, k0, k1);
      key0 += reference::kPhiloxWeyl0;
      key1 += reference::kPhiloxWeyl1;
    }
    auto* out = reinterpret_cast<uint64_t*>(to + i);
    const VU64 low = hn::Set(d, 0xffffffff);
#pragma GCC unroll 4
    for (const Words& w : words) {
      const VU64 words01 = hn::Or(hn::And(w.x0, low), hn::ShiftLeft<32>(w.x1));
      const VU64 words23 = hn::Or(hn::And(w.x2, low), hn::ShiftLeft<32>(w.x3));
      // Little-endian: the block's four words in memory are its eight numbers in order.
      hn::StoreInterleaved2(words01, words23, d, out);
      out += 2 * kBlocks;
    }
  }
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
