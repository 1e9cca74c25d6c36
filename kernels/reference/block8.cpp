// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/block8.h"

#include <algorithm>
#include <cstring>

namespace outrigger::kernels::reference {
namespace {

template <bool kPositive>
void unpack_block(float* values, const unsigned char* codes, float scale, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t code = codes[i];
    float x = decode8<kPositive>(kPositive ? code : code & 0x7f) * scale;
    if (!kPositive && (code & 0x80) != 0) x = -x;
    values[i] = canonical(x);
  }
}

template <bool kPositive>
float pack_block(unsigned char* codes, const float* values, int64_t count,
                 const BlockRounding& rounding, uint64_t element) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, bits_of(values[i]) & 0x7fffffff);
  std::memset(codes, 0, kLeaf);
  float scale = float_of(kCanonicalNan);
  if (largest < 0x7f800000) {
    const int32_t exponent = block_exponent(largest);
    scale = power_of_two(exponent);
    const float inverse = power_of_two(-exponent);
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t at = element + static_cast<uint64_t>(i);
      const uint32_t code = encode8<kPositive>(values[i], inverse, [&](uint32_t bits) {
        return rounding.rounding == Rounding::nearest
                   ? nearest_increment8(bits)
                   : random_increment8(random16(rounding.key, at, rounding.step, rounding.draw));
      });
      const uint32_t sign = kPositive ? 0 : (bits_of(values[i]) >> 24) & 0x80;
      codes[i] = static_cast<unsigned char>(code | sign);
    }
  }
  return scale;
}

}  // namespace

void unpack(float* values, const void* codes, const float* scales, Format format, int64_t count) {
  const auto* block = static_cast<const unsigned char*>(codes);
  const auto one = format == Format::block8 ? unpack_block<false> : unpack_block<true>;
  for (int64_t first = 0; first < count; first += kLeaf) {
    one(values + first, block + first, scales[first / kLeaf], std::min(kLeaf, count - first));
  }
}

void pack(void* codes, float* scales, Format format, const float* values, int64_t count,
          const BlockRounding& rounding) {
  auto* block = static_cast<unsigned char*>(codes);
  const auto one = format == Format::block8 ? pack_block<false> : pack_block<true>;
  for (int64_t first = 0; first < count; first += kLeaf) {
    scales[first / kLeaf] = one(block + first, values + first, std::min(kLeaf, count - first),
                                rounding, rounding.first_element + static_cast<uint64_t>(first));
  }
}

}  // namespace outrigger::kernels::reference
