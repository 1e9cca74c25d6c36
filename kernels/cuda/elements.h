// SPDX-License-Identifier: Apache-2.0
// A lane's eight elements, between memory in any format and float32: 16 bytes at a time where the
// address allows it, one by one at the end of an array or off alignment.
#pragma once

#include "kernels/cuda/warp.h"
#include "kernels/reference/convert.h"

namespace outrigger::kernels::cuda {

struct alignas(16) Words {
  uint32_t x[4];
};
struct alignas(8) Codes {
  uint8_t x[kPerLane];
};

template <class T>
OTR_DEVICE bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % alignof(T) == 0;
}

// first: of the eight, in elements from `data` on; count: how many of them there are, 0 to 8. The
// others are 0.
template <class E>
OTR_DEVICE void load(float (&out)[kPerLane], const void* data, int64_t first, int count) {
  using Storage = typename E::Storage;
  const Storage* const from = static_cast<const Storage*>(data) + first;
  if (count == kPerLane && is_aligned<Words>(from)) {
    const auto* const words = reinterpret_cast<const Words*>(from);
    if constexpr (sizeof(Storage) == 4) {
      const Words low = words[0], high = words[1];
      for (int i = 0; i < 4; ++i) {
        out[i] = E::load(reference::float_of(low.x[i]));
        out[i + 4] = E::load(reference::float_of(high.x[i]));
      }
    } else {
      const Words pairs = words[0];
      for (int i = 0; i < 4; ++i) {
        out[2 * i] = E::load(static_cast<Storage>(pairs.x[i]));
        out[2 * i + 1] = E::load(static_cast<Storage>(pairs.x[i] >> 16));
      }
    }
    return;
  }
  for (int i = 0; i < kPerLane; ++i) out[i] = i < count ? E::load(from[i]) : 0.0F;
}

// values: what is to be stored, as it is stored.
template <class Storage>
OTR_DEVICE void store(void* data, int64_t first, int count, const Storage (&values)[kPerLane]) {
  Storage* const to = static_cast<Storage*>(data) + first;
  if (count == kPerLane && is_aligned<Words>(to)) {
    auto* const words = reinterpret_cast<Words*>(to);
    Words low, high;
    if constexpr (sizeof(Storage) == 4) {
      for (int i = 0; i < 4; ++i) {
        low.x[i] = reference::bits_of(values[i]);
        high.x[i] = reference::bits_of(values[i + 4]);
      }
      words[1] = high;
    } else {
      for (int i = 0; i < 4; ++i) {
        low.x[i] = uint32_t{values[2 * i]} | uint32_t{values[2 * i + 1]} << 16;
      }
    }
    words[0] = low;
    return;
  }
  for (int i = 0; i < kPerLane; ++i) {
    if (i < count) to[i] = values[i];
  }
}

// 16 bits as they are.
OTR_DEVICE void load_halves(uint16_t (&out)[kPerLane], const uint16_t* data, int64_t first,
                            int count) {
  const uint16_t* const from = data + first;
  if (count == kPerLane && is_aligned<Words>(from)) {
    const Words pairs = *reinterpret_cast<const Words*>(from);
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = static_cast<uint16_t>(pairs.x[i]);
      out[2 * i + 1] = static_cast<uint16_t>(pairs.x[i] >> 16);
    }
    return;
  }
  for (int i = 0; i < kPerLane; ++i) out[i] = i < count ? from[i] : uint16_t{0};
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
OTR_DEVICE void load(float (&out)[kPerLane], const void* data, Format format, int64_t first,
                     int count) {
  if (data == nullptr) {
    for (float& x : out) x = 0;
    return;
  }
  with_number(format, [&](auto e) { load<decltype(e)>(out, data, first, count); });
}

// To nearest; x becomes what is stored.
template <class E>
OTR_DEVICE void store_nearest(void* data, int64_t first, int count, float (&x)[kPerLane]) {
  typename E::Storage rounded[kPerLane];
  for (int i = 0; i < kPerLane; ++i) {
    rounded[i] = E::store(x[i]);
    x[i] = E::load(rounded[i]);
  }
  store(data, first, count, rounded);
}
OTR_DEVICE void store_nearest(void* data, Format format, int64_t first, int count,
                              float (&x)[kPerLane]) {
  with_number(format, [&](auto e) { store_nearest<decltype(e)>(data, first, count, x); });
}

}  // namespace outrigger::kernels::cuda
