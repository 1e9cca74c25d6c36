// SPDX-License-Identifier: Apache-2.0
// Reduction of one bucket over ranks, with accumulation and norm in the same pass.
//   s = float32(source_0);  s += float32(source_r), r = 1 .. world-1 in order
//   a = round(add ? float32(a) + s : s), nearest even; a NaN is stored canonical
//   norm += squares of the stored a (reference/norm.h)
// No division: 1/(scale * world) belongs to the step.
#pragma once

#include "kernels/reference/formats.h"

namespace outrigger::kernels::reference {

// sum of the ranks' elements -> what is stored
template <class Accumulator>
OTR_ELEMENTWISE typename Accumulator::Storage fold_element(typename Accumulator::Storage old,
                                                           bool add, float sum) {
  return Accumulator::store(canonical(add ? Accumulator::load(old) + sum : sum));
}

void fold(const Fold& fold);

}  // namespace outrigger::kernels::reference
