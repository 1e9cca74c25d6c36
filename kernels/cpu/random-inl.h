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

// Stores a state; returns the values as stored. `random`: by these numbers, else to nearest.
template <class State, bool kStochastic>
HWY_INLINE Pair store_state(Pair x, typename State::Storage* to, [[maybe_unused]] bool random,
                            [[maybe_unused]] VU16 numbers) {
  if constexpr (std::is_same_v<State, Float32>) {
    Float32::store(x, to);
    return x;
  } else if constexpr (std::is_same_v<State, Float16>) {
    Float16::store(x, to);
    return Float16::rounded(x);
  } else {
    BitsPair bits = {bits_of(x.lo), bits_of(x.hi)};
    if (kStochastic && random) {
      const BitsPair r = State::words(numbers);
      bits = {hn::Add(bits.lo, r.lo), hn::Add(bits.hi, r.hi)};
    } else {
      bits = {nearest_bfloat16(x.lo), nearest_bfloat16(x.hi)};
    }
    State::store_bits(bits, to);
    return {BFloat16::upper_half(bits.lo), BFloat16::upper_half(bits.hi)};
  }
}

[[nodiscard]] constexpr bool is_random(Format format, Rounding rounding) {
  return rounding == Rounding::stochastic && (format == Format::bfloat16 || is_block(format));
}

// Which states of an update are stored by random numbers.
struct RandomStates {
  explicit HWY_INLINE RandomStates(const Update& u)
      : of{u.remainder == nullptr && is_random(u.weight_format, u.weight_rounding),
           is_random(u.exp_avg_format, u.exp_avg_rounding),
           is_random(u.exp_avg_sq_format, u.exp_avg_sq_rounding)} {}
  [[nodiscard]] HWY_INLINE bool operator[](Draw draw) const { return of[static_cast<int>(draw)]; }
  [[nodiscard]] HWY_INLINE bool any() const { return of[0] || of[1] || of[2]; }
  bool of[3];
};

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
