// SPDX-License-Identifier: Apache-2.0
// A float32 master weight in two halves of 16 bits: the bfloat16 that is published, and the rest.
//
//   published = (bits + 0x8000) >> 16    the nearest bfloat16, a tie away from zero
//   remainder = bits & 0xffff            as a signed number, what published << 16 lacks
//   bits      = (published << 16) + signed(remainder)
//
// So the halves are exactly a float32, and no second copy of the weight is stored. A value that
// rounds to infinity is published as such and comes back as what it was.
#pragma once

#include "kernels/reference/formats.h"

namespace outrigger::kernels::reference {

struct Halves {
  uint16_t published, remainder;
};

OTR_ELEMENTWISE Halves split_of(float x) {
  const uint32_t bits = bits_of(canonical(x));
  return {static_cast<uint16_t>((bits + 0x8000) >> 16), static_cast<uint16_t>(bits)};
}

OTR_ELEMENTWISE float join(uint16_t published, uint16_t remainder) {
  const auto rest = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(remainder)));
  return float_of((uint32_t{published} << 16) + rest);
}

}  // namespace outrigger::kernels::reference
