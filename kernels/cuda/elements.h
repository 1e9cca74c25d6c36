// SPDX-License-Identifier: Apache-2.0
// A lane's eight elements, between memory in any format and float32: 16 bytes at a time where the
// address allows it, one by one at the end of an array or off alignment.
#pragma once

#include <type_traits>

#include "kernels/cuda/warp.h"
#include "kernels/reference/convert.h"

namespace outrigger::kernels::cuda {

// Where a leaf lies, and which of its elements are whose: each lane has four side by side in the
// first half and four in the second, so that 32 lanes touch one run of memory at a time in each
// format. i, of a lane's eight: 0 to 3 in the first half.
struct LeafOf {
  int64_t first;  // element of the array
  int count;      // 1 to 256
  bool plain;     // it is whole, and all of its arrays are there and aligned to 16 bytes

  OTR_DEVICE LeafOf(int64_t elements, int64_t from)
      : first(from),
        count(elements - from < kLeaf ? static_cast<int>(elements - from) : 256),
        plain(false) {}
  OTR_DEVICE static LeafOf plain_at(int64_t from) {
    LeafOf leaf(from + kLeaf, from);
    leaf.count = 256;
    leaf.plain = true;
    return leaf;
  }
  OTR_DEVICE static int at(int lane, int i) {
    return i / kSide * (static_cast<int>(kLeaf) / 2) + lane * kSide + i % kSide;
  }
  [[nodiscard]] OTR_DEVICE bool has(int lane, int i) const { return at(lane, i) < count; }
  // Which of a lane's eight there are, a bit for each.
  [[nodiscard]] OTR_DEVICE uint32_t mask(int lane) const {
    if (plain || count == kLeaf) return 0xff;
    uint32_t bits = 0;
    for (int i = 0; i < kPerLane; ++i) bits |= static_cast<uint32_t>(has(lane, i)) << i;
    return bits;
  }
};

// A lane's four of a half, in words or parts of them. Each is read and written once, so no cache
// shall keep it for others.
template <int kWords>
struct alignas(4 * kWords) Side {
  uint32_t x[kWords];
};
template <int kWords>
OTR_DEVICE Side<kWords> read_side(const void* from) {
#if defined(__CUDA_ARCH__)
  Side<kWords> side;
  if constexpr (kWords == 4) {
    const uint4 x = __ldcs(static_cast<const uint4*>(from));
    side = {{x.x, x.y, x.z, x.w}};
  } else if constexpr (kWords == 2) {
    const uint2 x = __ldcs(static_cast<const uint2*>(from));
    side = {{x.x, x.y}};
  } else {
    side = {{__ldcs(static_cast<const unsigned*>(from))}};
  }
  return side;
#else
  return *static_cast<const Side<kWords>*>(from);
#endif
}
template <int kWords>
OTR_DEVICE void write_side(void* to, const Side<kWords>& side) {
#if defined(__CUDA_ARCH__)
  if constexpr (kWords == 4) {
    __stcs(static_cast<uint4*>(to), make_uint4(side.x[0], side.x[1], side.x[2], side.x[3]));
  } else if constexpr (kWords == 2) {
    __stcs(static_cast<uint2*>(to), make_uint2(side.x[0], side.x[1]));
  } else {
    __stcs(static_cast<unsigned*>(to), side.x[0]);
  }
#else
  *static_cast<Side<kWords>*>(to) = side;
#endif
}

template <class T>
OTR_DEVICE bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % alignof(T) == 0;
}

// A lane's eight.
using Lane = float[kPerLane];

// A lane's eight as they lie: of 32 bits one in each word, of 16 bits two, of 8 bits four. What is
// read of several arrays before the first of them is used is on its way at the same time.
struct Raw {
  uint32_t x[kPerLane];
};

// What there is not is 0.
template <class Storage>
OTR_DEVICE void read(Raw& raw, const void* data, const LeafOf& leaf, int lane) {
  constexpr int kWords = static_cast<int>(sizeof(Storage));  // of a side
  const Storage* const mine = static_cast<const Storage*>(data) + (leaf.first + lane * kSide);
  for (int half = 0; half < 2; ++half) {
    const int at = LeafOf::at(lane, half * kSide);
    const Storage* const from = mine + half * kLeaf / 2;
    if (leaf.plain || (at + kSide <= leaf.count && is_aligned<Side<kWords>>(from))) {
      const Side<kWords> side = read_side<kWords>(from);
      for (int i = 0; i < kWords; ++i) raw.x[half * kWords + i] = side.x[i];
      continue;
    }
    for (int i = 0; i < kWords; ++i) raw.x[half * kWords + i] = 0;
    for (int i = 0; i < kSide; ++i) {
      if (at + i >= leaf.count) continue;
      raw.x[half * kWords + i * kWords / 4] |= static_cast<uint32_t>(from[i])
                                               << (i * kWords % 4 * 8);
    }
  }
}
OTR_DEVICE uint16_t half_of(const Raw& raw, int i) {
  return static_cast<uint16_t>(raw.x[i / 2] >> (i % 2 * 16));
}

template <class E>
OTR_DEVICE void widen(Lane& out, const Raw& raw) {
  for (int i = 0; i < kPerLane; ++i) {
    if constexpr (sizeof(typename E::Storage) == 4) {
      out[i] = E::load(reference::float_of(raw.x[i]));
    } else {
      out[i] = E::load(half_of(raw, i));
    }
  }
}

// As read() has it.
template <class Storage>
OTR_DEVICE void write(void* data, const LeafOf& leaf, int lane, const Raw& raw) {
  constexpr int kWords = static_cast<int>(sizeof(Storage));
  Storage* const mine = static_cast<Storage*>(data) + (leaf.first + lane * kSide);
  for (int half = 0; half < 2; ++half) {
    const int at = LeafOf::at(lane, half * kSide);
    Storage* const to = mine + half * kLeaf / 2;
    if (leaf.plain || (at + kSide <= leaf.count && is_aligned<Side<kWords>>(to))) {
      Side<kWords> side;
      for (int i = 0; i < kWords; ++i) side.x[i] = raw.x[half * kWords + i];
      write_side(to, side);
      continue;
    }
    for (int i = 0; i < kSide; ++i) {
      if (at + i >= leaf.count) continue;
      to[i] = static_cast<Storage>(raw.x[half * kWords + i * kWords / 4] >> (i * kWords % 4 * 8));
    }
  }
}

// values: what is to be stored, in the upper half of each.
OTR_DEVICE void store_halves(void* data, const LeafOf& leaf, int lane,
                             const uint32_t (&values)[kPerLane]) {
  Raw raw;
  for (int i = 0; i < kPerLane; i += 2) raw.x[i / 2] = upper_halves(values[i], values[i + 1]);
  write<uint16_t>(data, leaf, lane, raw);
}

using Float32 = reference::Element<Format::float32>;
using Bfloat16 = reference::Element<Format::bfloat16>;
using Float16 = reference::Element<Format::float16>;

// Calls body with the format's trait.
template <class Body>
OTR_DEVICE void with_number(Format format, const Body& body) {
  if (format == Format::bfloat16) {
    body(Bfloat16{});
  } else if (format == Format::float16) {
    body(Float16{});
  } else {
    body(Float32{});
  }
}

// Null data: zeros.
OTR_DEVICE void read(Raw& raw, const void* data, Format format, const LeafOf& leaf, int lane) {
  if (!leaf.plain && data == nullptr) {
    for (uint32_t& word : raw.x) word = 0;
  } else if (format == Format::float32) {
    read<uint32_t>(raw, data, leaf, lane);
  } else {
    read<uint16_t>(raw, data, leaf, lane);
  }
}
OTR_DEVICE void widen(Lane& out, const Raw& raw, Format format) {
  with_number(format, [&](auto e) { widen<decltype(e)>(out, raw); });
}

// A canonical number, to nearest.
template <class E>
OTR_DEVICE typename E::Storage rounded_canonical(float x) {
  if constexpr (std::is_same_v<E, Bfloat16>) {
    return reference::round_canonical_to_bfloat16(x);
  } else {
    return E::store(x);
  }
}

// Canonical numbers, to nearest; x becomes what is stored.
template <class E>
OTR_DEVICE void store_nearest(void* data, const LeafOf& leaf, int lane, Lane& x) {
  if constexpr (sizeof(typename E::Storage) == 4) {
    Raw raw;
    for (int i = 0; i < kPerLane; ++i) raw.x[i] = reference::bits_of(x[i]);
    write<uint32_t>(data, leaf, lane, raw);
  } else {
    uint32_t rounded[kPerLane];
    for (int i = 0; i < kPerLane; ++i) {
      rounded[i] = uint32_t{rounded_canonical<E>(x[i])} << 16;
      x[i] = E::load(static_cast<uint16_t>(rounded[i] >> 16));
    }
    store_halves(data, leaf, lane, rounded);
  }
}
OTR_DEVICE void store_nearest(void* data, Format format, const LeafOf& leaf, int lane, Lane& x) {
  with_number(format, [&](auto e) { store_nearest<decltype(e)>(data, leaf, lane, x); });
}

}  // namespace outrigger::kernels::cuda
