// SPDX-License-Identifier: Apache-2.0
// A leaf of an update's states: eight elements of each lane, loaded as float32 and stored in their
// formats, by random numbers where the state's rounding says so.
#pragma once

#include "kernels/cuda/elements.h"
#include "kernels/reference/block8.h"
#include "kernels/reference/split.h"

namespace outrigger::kernels::cuda {

using Lane = float[kPerLane];

// Where a leaf lies, and what of it each lane has.
struct LeafOf {
  int64_t first;  // element of the update
  int count;      // 1 to 256

  OTR_DEVICE LeafOf(const Update& u, int64_t from)
      : first(from), count(u.count - from < kLeaf ? static_cast<int>(u.count - from) : 256) {}
  OTR_DEVICE int64_t at(int lane) const { return first + lane * kPerLane; }
  OTR_DEVICE int mine(int lane) const {
    const int rest = count - lane * kPerLane;
    return rest < 0 ? 0 : rest < kPerLane ? rest : kPerLane;
  }
};

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
// Of the leaf's i-th element.
OTR_DEVICE uint16_t random16(const Scratch& scratch, int i, Draw draw) {
  const int n = i % static_cast<int>(reference::kNumbers);
  const uint32_t word = scratch.random[n / 2];
  const uint32_t number = n % 2 == 0 ? word & 0xffff : word >> 16;
  const bool second_half = i >= static_cast<int>(reference::kNumbers);
  return static_cast<uint16_t>(number * reference::draw_factor(second_half, draw));
}

template <bool kPositive>
OTR_DEVICE void load_codes(Lane& out, const void* codes, float scale, const LeafOf& leaf,
                           int lane) {
  const auto* const from = static_cast<const uint8_t*>(codes) + leaf.at(lane);
  Codes read;
  if (is_aligned<Codes>(from)) {
    read = *reinterpret_cast<const Codes*>(from);
  } else {
    for (int i = 0; i < kPerLane; ++i) read.x[i] = from[i];
  }
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t code = read.x[i];
    float x = reference::decode8<kPositive>(kPositive ? code : code & 0x7f) * scale;
    if (!kPositive && (code & 0x80) != 0) x = -x;
    out[i] = i < leaf.mine(lane) ? reference::canonical(x) : 0;
  }
}

// Of a moment. Null: zeros.
OTR_DEVICE void load_moment(Lane& out, const void* data, const float* scales, Format format,
                            const LeafOf& leaf, int lane) {
  if (data == nullptr || !is_block(format)) {
    load(out, data, format, leaf.at(lane), leaf.mine(lane));
  } else if (format == Format::block8) {
    load_codes<false>(out, data, scales[leaf.first / kLeaf], leaf, lane);
  } else {
    load_codes<true>(out, data, scales[leaf.first / kLeaf], leaf, lane);
  }
}

// Codes lie in whole leaves.
template <bool kPositive>
OTR_DEVICE void store_codes(PerLane<Lane>& values, void* codes, float* scales, Rounding rounding,
                            Draw draw, const LeafOf& leaf, const Scratch& scratch) {
  PerLane<uint32_t> most;
  each_lane([&](int lane) {
    most[lane] = 0;
    for (int i = 0; i < kPerLane; ++i) {
      const uint32_t magnitude = reference::bits_of(values[lane][i]) & 0x7fffffff;
      if (i < leaf.mine(lane) && magnitude > most[lane]) most[lane] = magnitude;
    }
  });
  const uint32_t magnitude = largest(most);
  const bool finite = magnitude < 0x7f800000;
  const int32_t exponent = finite ? reference::block_exponent(magnitude) : 0;
  const float inverse = reference::power_of_two(-exponent);
  each_lane([&](int lane) {
    Codes coded = {};
    for (int i = 0; i < kPerLane; ++i) {
      if (!finite || i >= leaf.mine(lane)) continue;
      const float x = values[lane][i];
      const int element = lane * kPerLane + i;
      const uint32_t code = reference::encode8<kPositive>(x, inverse, [&](uint32_t bits) {
        return rounding == Rounding::nearest
                   ? reference::nearest_increment8(bits)
                   : reference::random_increment8(random16(scratch, element, draw));
      });
      const uint32_t sign = kPositive ? 0 : (reference::bits_of(x) >> 24) & 0x80;
      coded.x[i] = static_cast<uint8_t>(code | sign);
    }
    auto* const to = static_cast<uint8_t*>(codes) + leaf.at(lane);
    if (is_aligned<Codes>(to)) {
      *reinterpret_cast<Codes*>(to) = coded;
    } else {
      for (int i = 0; i < kPerLane; ++i) to[i] = coded.x[i];
    }
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
    store_nearest(data, format, leaf.at(lane), leaf.mine(lane), x);
    return;
  }
  uint16_t rounded[kPerLane];
  for (int i = 0; i < kPerLane; ++i) {
    rounded[i] = reference::round_to_bfloat16(x[i], random16(scratch, lane * kPerLane + i, draw));
    x[i] = reference::widen_bfloat16(rounded[i]);
  }
  store(data, leaf.at(lane), leaf.mine(lane), rounded);
}

// Of a moment. Null: nothing.
OTR_DEVICE void store_moment(PerLane<Lane>& values, void* data, float* scales, Format format,
                             Rounding rounding, Draw draw, const LeafOf& leaf,
                             const Scratch& scratch) {
  if (data == nullptr) return;
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

OTR_DEVICE void load_weights(Lane& out, const Update& u, const LeafOf& leaf, int lane) {
  load(out, u.weight, u.weight_format, leaf.at(lane), leaf.mine(lane));
  if (u.remainder == nullptr) return;
  uint16_t lower[kPerLane];
  load_halves(lower, u.remainder, leaf.at(lane), leaf.mine(lane));
  for (int i = 0; i < kPerLane; ++i) {
    out[i] = reference::join(static_cast<uint16_t>(reference::bits_of(out[i]) >> 16), lower[i]);
  }
}

// x becomes what is stored.
OTR_DEVICE void store_weights(Lane& x, const Update& u, const LeafOf& leaf, const Scratch& scratch,
                              int lane) {
  if (u.remainder == nullptr) {
    store_numbers(x, u.weight, u.weight_format, u.weight_rounding, Draw::weight, leaf, scratch,
                  lane);
    return;
  }
  uint16_t upper[kPerLane], lower[kPerLane];
  for (int i = 0; i < kPerLane; ++i) {
    const reference::Halves halves = reference::split_of(x[i]);
    upper[i] = halves.published;
    lower[i] = halves.remainder;
    x[i] = reference::join(upper[i], lower[i]);
  }
  store(u.weight, leaf.at(lane), leaf.mine(lane), upper);
  store(u.remainder, leaf.at(lane), leaf.mine(lane), lower);
}

}  // namespace outrigger::kernels::cuda
