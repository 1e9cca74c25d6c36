// SPDX-License-Identifier: Apache-2.0
// Storing states, to nearest or by a leaf's random numbers.

#if defined(OTR_KERNELS_CPU_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OTR_KERNELS_CPU_RANDOM_INL_H_
#undef OTR_KERNELS_CPU_RANDOM_INL_H_
#else
#define OTR_KERNELS_CPU_RANDOM_INL_H_
#endif

#include "kernels/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

// Stores a state; returns the values as stored. `random`: by these words, else to nearest.
template <class State, bool kStochastic>
HWY_INLINE Pair store_state(Pair x, typename State::Storage* to, [[maybe_unused]] bool random,
                            [[maybe_unused]] BitsPair words) {
  if constexpr (std::is_same_v<State, Float32>) {
    Float32::store(x, to);
    return x;
  } else if constexpr (std::is_same_v<State, Float16>) {
    Float16::store(x, to);
    return Float16::rounded(x);
  } else {
    BitsPair bits = {bits_of(x.lo), bits_of(x.hi)};
    if (kStochastic && random) {
      bits = {hn::Add(bits.lo, words.lo), hn::Add(bits.hi, words.hi)};
    } else {
      bits = {nearest_bfloat16(x.lo), nearest_bfloat16(x.hi)};
    }
    State::store_bits(bits, to);
    return {BFloat16::upper_half(bits.lo), BFloat16::upper_half(bits.hi)};
  }
}

// The weights of an update, and what is stored with them.
template <class Weight>
class Weights {
 public:
  using Storage = typename Weight::Storage;
  explicit HWY_INLINE Weights(const Update& u)
      : weight_(static_cast<Storage*>(u.weight)),
        remainder_(u.remainder),
        published_(static_cast<uint16_t*>(u.published)),
        half_(u.published_format == Format::float16) {}

  HWY_INLINE void prefetch(int64_t i) const {
    prefetch_ahead(weight_ + i);
    if constexpr (kIsSplit<Weight>) prefetch_ahead(remainder_ + i);
  }
  [[nodiscard]] HWY_INLINE Pair load(int64_t i) const {
    if constexpr (kIsSplit<Weight>) {
      return Weight::load(weight_ + i, remainder_ + i);
    } else {
      return Weight::load(weight_ + i);
    }
  }
  // As store_state(), and the published copy. Returns how many of the pair keep the bits of `old`.
  template <bool kStochastic>
  HWY_INLINE size_t store(Pair x, Pair old, int64_t i, bool random, BitsPair words) const {
    if constexpr (kIsSplit<Weight>) {
      Weight::store(x, weight_ + i, remainder_ + i);
      return count_unchanged(x, old);
    } else if constexpr (std::is_same_v<Weight, Float32>) {
      Weight::store(x, weight_ + i);
      if (published_ != nullptr) {
        if (half_) {
          Float16::store(x, published_ + i);
        } else {
          BFloat16::store(x, published_ + i);
        }
      }
      return count_unchanged(x, old);
    } else {  // compared as stored: one vector instead of two
      const DU16 d16;
      const auto before = hn::LoadU(d16, weight_ + i);
      store_state<Weight, kStochastic>(x, weight_ + i, random, words);
      return hn::CountTrue(d16, hn::Eq(hn::LoadU(d16, weight_ + i), before));
    }
  }

 private:
  Storage* weight_;
  uint16_t* remainder_;
  uint16_t* published_;
  bool half_;
};

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
