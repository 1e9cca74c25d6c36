// SPDX-License-Identifier: Apache-2.0
// Formats in which a value is no plain array of numbers, but two: beside the lower half of a split
// master its published one, beside 8-bit codes their scales. Here they are read and written as
// float32, for checks and exports; an update does it inside.
#pragma once

#include "kernels/kernels.h"

namespace outrigger::kernels {

[[nodiscard]] constexpr bool is_composed(Format f) { return f == Format::split || is_block(f); }

// Of so many elements what lies beside.
[[nodiscard]] constexpr int64_t beside_bytes_of(int64_t elements, Format f) {
  return f == Format::split ? elements * 2 : scale_bytes_of(elements, f);
}

inline void read_composed(float* values, const void* stored, const void* beside, Format format,
                          int64_t count) {
  if (format == Format::split) {
    join(values, static_cast<const uint16_t*>(beside), static_cast<const uint16_t*>(stored), count);
  } else {
    unpack(values, stored, static_cast<const float*>(beside), format, count);
  }
}

// The same of any format.
inline void read_float32(float* values, const void* stored, const void* beside, Format format,
                         int64_t count) {
  if (is_composed(format)) {
    read_composed(values, stored, beside, format, count);
  } else {
    convert(values, Format::float32, stored, format, count);
  }
}

// To nearest.
inline void write_composed(void* stored, void* beside, Format format, const float* values,
                           int64_t count) {
  if (format == Format::split) {
    split(static_cast<uint16_t*>(beside), static_cast<uint16_t*>(stored), values, count);
  } else {
    pack(stored, static_cast<float*>(beside), format, values, count, {});
  }
}

}  // namespace outrigger::kernels
