// SPDX-License-Identifier: Apache-2.0
// Random 16-bit numbers (reference/philox.h): one Philox block in each 64-bit lane, whose
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
  Words() = default;
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

// The numbers of a leaf in the making: round by round, so that other work can fill the waits for
// the products.
class LeafPhilox {
 public:
  HWY_INLINE LeafPhilox(uint64_t key, uint64_t step) : step_(step) {
    auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
    for (auto& k : keys_) {
      k[0] = key0;
      k[1] = key1;
      key0 += reference::kPhiloxWeyl0;
      key1 += reference::kPhiloxWeyl1;
    }
  }

  // Of the leaf in which `element` lies.
  HWY_INLINE void begin(uint64_t element) {
    uint64_t block = element / kLeaf * reference::kBlocksPerLeaf;
    round_ = 0;
#pragma GCC unroll 8
    for (Words& w : words_) {
      w = Words(block, step_);
      block += HWY_LANES(uint64_t);
    }
  }
  HWY_INLINE void round() {
    if (round_ == reference::kPhiloxRounds) return;
    const DU64 d;
    const VU64 k0 = hn::Set(d, keys_[round_][0]), k1 = hn::Set(d, keys_[round_][1]);
#pragma GCC unroll 8
    for (Words& w : words_) philox_round(w, k0, k1);
    ++round_;
  }
  // Runs the rounds that are left.
  HWY_INLINE void finish(uint16_t* numbers) {
    while (round_ < reference::kPhiloxRounds) round();
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v += 2) {
      const Words &a = words_[v], &b = words_[v + 1];
      const auto store = [&](int word, VU64 low, VU64 high) HWY_ATTR {  // of block n: at 2 n
        auto* to = reinterpret_cast<uint32_t*>(numbers + 32 * word) + v * kLanes;
        hn::StoreU(hn::ConcatEven(DU{}, hn::BitCast(DU{}, high), hn::BitCast(DU{}, low)), DU{}, to);
      };
      store(0, a.x0, b.x0);
      store(1, a.x1, b.x1);
      store(2, a.x2, b.x2);
      store(3, a.x3, b.x3);
    }
  }

 private:
  static constexpr int kLanes = static_cast<int>(HWY_LANES(uint64_t));
  static constexpr int kVectors = static_cast<int>(reference::kBlocksPerLeaf) / kLanes;
  Words words_[kVectors];
  uint64_t step_, keys_[reference::kPhiloxRounds][2];
  int round_ = 0;
};

HWY_INLINE void random_numbers(uint64_t key, uint64_t element, uint64_t step, uint16_t* to) {
  LeafPhilox philox(key, step);
  philox.begin(element);
  philox.finish(to);
}

using VU16 = hn::Vec<DU16>;

// A draw's factor in each half of a leaf.
HWY_INLINE VU16 draw_factor(Draw draw, bool second_half) {
  return hn::Set(DU16{}, reference::kDrawFactors[second_half ? 1 : 0][static_cast<int>(draw)]);
}

// A draw of the pair at `position` of its leaf, from the leaf's numbers.
HWY_INLINE VU16 drawn(Draw draw, const uint16_t* numbers, int64_t position) {
  const bool second_half = position >= reference::kNumbers;
  const int64_t n = position % reference::kNumbers;
  return hn::Mul(hn::LoadU(DU16{}, numbers + n), draw_factor(draw, second_half));
}

// All of a leaf.
HWY_INLINE void draw_leaf(Draw draw, const uint16_t* numbers, uint16_t* to) {
  for (int64_t i = 0; i < kLeaf; i += kPair) {
    hn::StoreU(drawn(draw, numbers, i), DU16{}, to + i);
  }
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
