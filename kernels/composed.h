// SPDX-License-Identifier: Apache-2.0
// Formats in which a value is no plain array of numbers: the other half of a split master lies
// elsewhere, an 8-bit code means nothing without its block. Here they are read and written as
// float32, for checks and exports; an update does it inside.
#pragma once

#include "kernels/kernels.h"

namespace outrigger::kernels {

[[nodiscard]] constexpr bool is_composed(Format f) { return f == Format::split || is_block(f); }

// published: of a split master, whose `stored` half is the remainder; else unused.
inline void read_composed(float* values, const void* stored, Format format,
                          const uint16_t* published, int64_t count) {
  if (format == Format::split) {
    join(values, published, static_cast<const uint16_t*>(stored), count);
  } else {
    unpack(values, stored, format, count);
  }
}

// The same of any format.
inline void read_float32(float* values, const void* stored, Format format,
                         const uint16_t* published, int64_t count) {
  if (is_composed(format)) {
    read_composed(values, stored, format, published, count);
  } else {
    convert(values, Format::float32, stored, format, count);
  }
}

// To nearest.
inline void write_composed(void* stored, Format format, uint16_t* published, const float* values,
                           int64_t count) {
  if (format == Format::split) {
    split(published, static_cast<uint16_t*>(stored), values, count);
  } else {
    pack(stored, format, values, count, {});
  }
}

}  // namespace outrigger::kernels
