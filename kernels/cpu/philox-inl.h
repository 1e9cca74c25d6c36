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

HWY_INLINE VU64 product(VU64 a, uint32_t b) {
  return hn::MulEven(hn::BitCast(DU{}, a), hn::Set(DU{}, b));
}
// Its upper half, xored with the others.
HWY_INLINE VU64 mixed(VU64 product, VU64 word, VU64 key) {
  return hn::Xor3(hn::ShiftRight<32>(product), word, key);
}

// The four words of as many blocks as a vector has 64-bit lanes.
struct Words {
  VU64 x0, x1, x2, x3;
  HWY_INLINE void round(VU64 key0, VU64 key1) {
    const VU64 product0 = product(x0, reference::kPhiloxMultiplier0);
    const VU64 product1 = product(x2, reference::kPhiloxMultiplier1);
    x0 = mixed(product1, x1, key0);
    x2 = mixed(product0, x3, key1);
    x1 = product1;
    x3 = product0;
  }
};

// The numbers of one leaf after another.
class LeafPhilox {
 public:
  HWY_INLINE LeafPhilox(uint64_t key, uint64_t step)
      : step_(static_cast<uint32_t>(step)), step_high_(static_cast<uint32_t>(step >> 32)) {
    auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
    for (auto& k : keys_) {
      k[0] = key0;
      k[1] = key1;
      key0 += reference::kPhiloxWeyl0;
      key1 += reference::kPhiloxWeyl1;
    }
  }

  // Of the leaf in which `element` lies. Its blocks' counters differ in the first word only, which
  // reaches one of the two products in each of the first two rounds; the other is the leaf's.
  HWY_INLINE void draw(uint64_t element, uint16_t* numbers) const {
    const DU64 d;
    const uint64_t block = element / kLeaf * reference::kBlocksPerLeaf;
    const uint64_t first = uint64_t{reference::kPhiloxMultiplier1} * step_;
    const uint64_t second =
        reference::kPhiloxMultiplier0 * ((first >> 32) ^ (block >> 32) ^ keys_[0][0]);
    const VU64 x3_key = hn::Set(d, step_high_ ^ keys_[0][1]);
    const VU64 x1_key = hn::Set(d, static_cast<uint32_t>(first) ^ keys_[1][0]);
    const VU64 upper_key = hn::Set(d, (second >> 32) ^ keys_[1][1]);
    const auto after_two_rounds = [&](int v) HWY_ATTR {
      const VU64 counter = hn::Iota(d, block + static_cast<uint64_t>(v * kLanes));
      const VU64 product0 = product(counter, reference::kPhiloxMultiplier0);
      const VU64 x2 = hn::Xor(hn::ShiftRight<32>(product0), x3_key);
      const VU64 product1 = product(x2, reference::kPhiloxMultiplier1);
      return Words{hn::Xor(hn::ShiftRight<32>(product1), x1_key), product1,
                   hn::Xor(product0, upper_key), hn::Set(d, second)};
    };
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v += 2) {
      Words a = after_two_rounds(v), b = after_two_rounds(v + 1);
#pragma GCC unroll 8
      for (int r = 2; r < reference::kPhiloxRounds; ++r) {
        const VU64 key0 = hn::Set(d, keys_[r][0]), key1 = hn::Set(d, keys_[r][1]);
        a.round(key0, key1);
        b.round(key0, key1);
      }
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
  uint32_t step_, step_high_;
  uint64_t keys_[reference::kPhiloxRounds][2];
};

HWY_INLINE void random_numbers(uint64_t key, uint64_t element, uint64_t step, uint16_t* to) {
  LeafPhilox(key, step).draw(element, to);
}

using VU16 = hn::Vec<DU16>;

// A draw's factor in each half of a leaf.
HWY_INLINE VU16 draw_factor(Draw draw, bool second_half) {
  return hn::Set(DU16{}, reference::draw_factor(second_half, draw));
}

// A draw of the pair at `position` of its leaf, from the leaf's numbers.
HWY_INLINE VU16 drawn(Draw draw, const uint16_t* numbers, int64_t position) {
  const bool second_half = position >= reference::kNumbers;
  const int64_t n = position % reference::kNumbers;
  return hn::Mul(hn::LoadU(DU16{}, numbers + n), draw_factor(draw, second_half));
}

// A leaf's numbers as the 32-bit words that a state's words() makes of them, so that a draw for a
// pair is two products: of 16-bit lanes, the upper ones of which are zero.
template <class State>
class LeafWords {
 public:
  HWY_INLINE LeafWords() {
    for (const bool second_half : {false, true}) {
      for (const Draw draw : {Draw::weight, Draw::exp_avg, Draw::exp_avg_sq}) {
        hn::Store(draw_factor(draw, second_half), DU16{}, factors_ + place(draw, second_half));
      }
    }
  }
  HWY_INLINE void take(const uint16_t* numbers) {
    for (int64_t n = 0; n < reference::kNumbers; n += kPair) {
      const BitsPair words = State::words(hn::LoadU(DU16{}, numbers + n));
      hn::Store(words.lo, DU{}, words_ + n);
      hn::Store(words.hi, DU{}, words_ + n + kVector);
    }
  }
  // Those of one pair.
  struct OfPair {
    const uint32_t* words;
    const uint16_t* factors;
    [[nodiscard]] HWY_INLINE BitsPair drawn(Draw draw) const {
      const VU16 factor = hn::Load(DU16{}, factors + place(draw, false));
      const auto product = [&](const uint32_t* at) HWY_ATTR {
        return hn::BitCast(DU{}, hn::Mul(hn::BitCast(DU16{}, hn::Load(DU{}, at)), factor));
      };
      return {product(words), product(words + kVector)};
    }
  };
  [[nodiscard]] HWY_INLINE OfPair at(int64_t position) const {
    const int64_t second_half = position / reference::kNumbers;
    return {words_ + position % reference::kNumbers, factors_ + second_half * 3 * kPair};
  }

 private:
  static HWY_INLINE int64_t place(Draw draw, bool second_half) {
    return ((second_half ? 3 : 0) + static_cast<int>(draw)) * kPair;
  }
  alignas(64) uint16_t factors_[6 * kPair];
  alignas(64) uint32_t words_[reference::kNumbers];
};

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
