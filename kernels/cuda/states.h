// SPDX-License-Identifier: Apache-2.0
// A leaf of an update's states: eight elements of each lane, loaded as float32 and stored in their
// formats, by random numbers where the state's rounding says so.
#pragma once

#include "kernels/cuda/elements.h"
#include "kernels/reference/block8.h"
#include "kernels/reference/split.h"

namespace outrigger::kernels::cuda {

OTR_DEVICE bool is_random(Format format, Rounding rounding) {
  return rounding == Rounding::stochastic && (format == Format::bfloat16 || is_block(format));
}

// The leaf's 128 random numbers, two in each word of the scratch; see reference/philox.h. Ends with
// a sync().
OTR_DEVICE void draw(const RandomStream& random, const LeafOf& leaf, Scratch& scratch) {
  using reference::kBlocksPerLeaf;
  const uint64_t element = random.first_element + static_cast<uint64_t>(leaf.first);
  each_lane([&](int lane) {
    if (lane >= kBlocksPerLeaf) return;
    const uint64_t c = element / kLeaf * kBlocksPerLeaf + static_cast<uint64_t>(lane);
    const reference::PhiloxBlock block = reference::philox(
        {{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32),
          static_cast<uint32_t>(random.step), static_cast<uint32_t>(random.step >> 32)}},
        random.key);
    for (int w = 0; w < 4; ++w) scratch.random[w * kBlocksPerLeaf + lane] = block.x[w];
  });
  sync();
}

// Of a lane's eight elements: those of the halves have the same numbers, times other factors. The
// product is taken in a word's upper half, where one instruction both shifts and adds it.
struct Numbers {
  Side<2> words;

  [[nodiscard]] OTR_DEVICE uint16_t of(int i, Draw draw) const {
    const uint32_t word = words.x[i % kSide / 2];
    const uint32_t factor = reference::draw_factor(i >= kSide, draw);
    return static_cast<uint16_t>(
        (i % 2 == 0 ? word * (factor << 16) : (word & 0xffff0000) * factor) >> 16);
  }
};
static_assert(reference::kNumbers == kLeaf / 2);
OTR_DEVICE Numbers numbers_of(const Scratch& scratch, int lane) {
  return {reinterpret_cast<const Side<2>*>(scratch.random)[lane]};
}

// A leaf of one state as it lies: its elements, or its codes and their scale.
struct RawState {
  PerLane<Raw> elements;
  float scale;
};

// Of a moment. Null: zeros.
OTR_DEVICE void read_moment(RawState& raw, const void* data, const float* scales, Format format,
                            const LeafOf& leaf) {
  const bool coded = (leaf.plain || data != nullptr) && is_block(format);
  raw.scale = coded ? scales[leaf.first / kLeaf] : 0;
  each_lane([&](int lane) {
    if (coded) {
      read<uint8_t>(raw.elements[lane], data, leaf, lane);
    } else {
      read(raw.elements[lane], data, format, leaf, lane);
    }
  });
}

// A code's bits, put where a float32 has them, are a number of its own size, denormal as the code
// is, times a power of two: so is a number's code read off its bits.
template <bool kPositive>
OTR_DEVICE float code_unit() {
  return kPositive ? 0x1p96F : 0x1p112F;  // 2^(kLeastNormal + 126)
}
static_assert(reference::Code8<true>::kLeastNormal + 126 == 96 &&
              reference::Code8<false>::kLeastNormal + 126 == 112);

template <bool kPositive>
OTR_DEVICE void widen_codes(Lane& out, const Raw& raw, float scale, uint32_t mask) {
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t code = raw.x[i / 4] >> (i % 4 * 8) & 0xff;
    const uint32_t bits = kPositive ? code << 20 : (code & 0x7f) << 20 | (code & 0x80) << 24;
    out[i] = (mask >> i & 1) != 0 ? reference::float_of(bits) : 0;
  }
  // Exact either way; one factor is enough but for scales whose product is beyond float32.
  const float unit = code_unit<kPositive>(), factor = unit * scale;
  if (reference::is_finite(factor)) {
    for (float& x : out) x *= factor;
  } else {
    for (float& x : out) x = x * unit * scale;
  }
}
OTR_DEVICE void widen_moment(PerLane<Lane>& out, RawState& raw, Format format, const LeafOf& leaf) {
  each_lane([&](int lane) {
    if (format == Format::block8) {
      widen_codes<false>(out[lane], raw.elements[lane], raw.scale, leaf.mask(lane));
    } else if (format == Format::positive_block8) {
      widen_codes<true>(out[lane], raw.elements[lane], raw.scale, leaf.mask(lane));
    } else {
      widen(out[lane], raw.elements[lane], format);
    }
  });
}

// Codes lie in whole leaves, those after the last element are 0.
template <bool kPositive>
OTR_DEVICE void store_codes(PerLane<Lane>& values, void* codes, float* scales, Rounding rounding,
                            Draw draw, const LeafOf& leaf, const Scratch& scratch) {
  using C = reference::Code8<kPositive>;
  PerLane<uint32_t> most;  // without the sign, which is shifted out
  each_lane([&](int lane) {
    most[lane] = 0;
    for (int i = 0; i < kPerLane; ++i) {
      const uint32_t bits = reference::bits_of(values[lane][i]), magnitude = bits + bits;
      if (magnitude > most[lane] && (leaf.mask(lane) >> i & 1) != 0) most[lane] = magnitude;
    }
  });
  const uint32_t magnitude = largest(most) / 2;
  const bool finite = magnitude < 0x7f800000;
  const int32_t exponent = finite ? reference::block_exponent(magnitude) : 0;
  const float inverse = reference::power_of_two(-exponent), unit = 1 / code_unit<kPositive>();
  each_lane([&](int lane) {
    // One factor does, unless it is denormal: what the first product would round is 0 in the end.
    Lane scaled;
    if (inverse * unit >= 0x1p-126F) {
      for (int i = 0; i < kPerLane; ++i) scaled[i] = values[lane][i] * (inverse * unit);
    } else {
      for (int i = 0; i < kPerLane; ++i) scaled[i] = values[lane][i] * inverse * unit;
    }
    const Numbers numbers = rounding == Rounding::nearest ? Numbers{} : numbers_of(scratch, lane);
    uint32_t coded[kPerLane];  // in the highest byte
    for (int i = 0; i < kPerLane; ++i) {
      const float x = values[lane][i];
      uint32_t bits = reference::bits_of(scaled[i]) & 0x7fffffff;
      bits += rounding == Rounding::nearest ? reference::nearest_increment8(bits)
                                            : reference::random_increment8(numbers.of(i, draw));
      constexpr uint32_t kLast = C::kLastCode << C::kCut, kFirst = 1U << C::kCut;
      if (bits > kLast) bits = kLast;
      if (kPositive && x != 0 && bits < kFirst) bits = kFirst;
      coded[i] = bits << 4;
      if (!kPositive) coded[i] = (coded[i] & 0x7fffffff) | (reference::bits_of(x) & 0x80000000);
      if ((leaf.mask(lane) >> i & 1) == 0) coded[i] = 0;
    }
    Raw raw;
    for (int i = 0; i < kPerLane; i += 4) {
      raw.x[i / 4] = finite ? highest_bytes(coded[i], coded[i + 1], coded[i + 2], coded[i + 3]) : 0;
    }
    write<uint8_t>(codes, leaf.plain ? leaf : LeafOf(leaf.first + kLeaf, leaf.first), lane, raw);
    if (lane == 0) {
      scales[leaf.first / kLeaf] = finite ? reference::power_of_two(exponent)
                                          : reference::float_of(reference::kCanonicalNan);
    }
  });
}

// 16 bits and more, by the state's rounding; x becomes what is stored.
OTR_DEVICE void store_numbers(Lane& x, void* data, Format format, Rounding rounding, Draw draw,
                              const LeafOf& leaf, const Scratch& scratch, int lane) {
  if (!is_random(format, rounding)) {
    store_nearest(data, format, leaf, lane, x);
    return;
  }
  const Numbers numbers = numbers_of(scratch, lane);
  uint32_t rounded[kPerLane];
  for (int i = 0; i < kPerLane; ++i) {
    x[i] = reference::widen_bfloat16(
        reference::round_canonical_to_bfloat16(x[i], numbers.of(i, draw)));
    rounded[i] = reference::bits_of(x[i]);
  }
  store_halves(data, leaf, lane, rounded);
}

// Of a moment. Null: nothing.
OTR_DEVICE void store_moment(PerLane<Lane>& values, void* data, float* scales, Format format,
                             Rounding rounding, Draw draw, const LeafOf& leaf,
                             const Scratch& scratch) {
  if (!leaf.plain && data == nullptr) return;
  if (format == Format::block8) {
    store_codes<false>(values, data, scales, rounding, draw, leaf, scratch);
  } else if (format == Format::positive_block8) {
    store_codes<true>(values, data, scales, rounding, draw, leaf, scratch);
  } else {
    each_lane([&](int lane) {
      store_numbers(values[lane], data, format, rounding, draw, leaf, scratch, lane);
    });
  }
}

// Of the weights; lower: the lower halves of a split one.
OTR_DEVICE void read_weights(PerLane<Raw>& raw, PerLane<Raw>& lower, const Update& u,
                             const LeafOf& leaf) {
  each_lane([&](int lane) {
    read(raw[lane], u.weight, u.weight_format, leaf, lane);
    if (u.remainder != nullptr) read<uint16_t>(lower[lane], u.remainder, leaf, lane);
  });
}
OTR_DEVICE void widen_weights(PerLane<Lane>& out, PerLane<Raw>& raw, PerLane<Raw>& lower,
                              const Update& u) {
  each_lane([&](int lane) {
    if (u.remainder == nullptr) {
      widen(out[lane], raw[lane], u.weight_format);
      return;
    }
    for (int i = 0; i < kPerLane; ++i) {
      out[lane][i] = reference::join(half_of(raw[lane], i), half_of(lower[lane], i));
    }
  });
}

// x becomes what is stored.
OTR_DEVICE void store_weights(Lane& x, const Update& u, const LeafOf& leaf, const Scratch& scratch,
                              int lane) {
  if (u.remainder == nullptr) {
    store_numbers(x, u.weight, u.weight_format, u.weight_rounding, Draw::weight, leaf, scratch,
                  lane);
    return;
  }
  uint32_t upper[kPerLane], lower[kPerLane];
  for (int i = 0; i < kPerLane; ++i) {
    const reference::Halves halves = reference::split_of(x[i]);
    upper[i] = uint32_t{halves.published} << 16;
    lower[i] = uint32_t{halves.remainder} << 16;
    x[i] = reference::join(halves.published, halves.remainder);
  }
  store_halves(u.weight, leaf, lane, upper);
  store_halves(u.remainder, leaf, lane, lower);
}

}  // namespace outrigger::kernels::cuda
