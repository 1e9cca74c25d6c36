// SPDX-License-Identifier: Apache-2.0
// Values in the forms in which ranks send them.
#include "core/device/host.h"
#include "kernels/in_integers.h"

namespace outrigger::device {

using kernels::advance;

void Host::to_blocks(void* blocks, const void* values, Format from, int64_t count) {
  float* const scales = kernels::scales_behind(blocks, count, Format::block8);
  run_chunks(count, [&](int64_t begin, int64_t n, int32_t) {
    kernels::pack_values(advance(blocks, begin, Format::block8), scales + begin / kernels::kLeaf,
                         advance(values, begin, from), from, n);
  });
}

void Host::to_integers(void* integers, const void* values, Format from, int64_t count) {
  float* const scales = kernels::scales_behind(integers, count, Format::block8);
  run_chunks(count, [&](int64_t begin, int64_t n, int32_t) {
    kernels::values_to_integers(advance(integers, begin, Format::block8),
                                scales + begin / kernels::kLeaf, advance(values, begin, from), from,
                                n);
  });
}

void Host::from_integers(void* values, Format to, const void* integers, int64_t count) {
  const float* const scales =
      kernels::scales_behind(const_cast<void*>(integers), count, Format::block8);
  run_chunks(count, [&](int64_t begin, int64_t n, int32_t) {
    kernels::values_from_integers(advance(values, begin, to), to,
                                  advance(integers, begin, Format::block8),
                                  scales + begin / kernels::kLeaf, n);
  });
}

}  // namespace outrigger::device
