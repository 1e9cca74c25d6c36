// SPDX-License-Identifier: Apache-2.0
// An element of a product, in float32:
//   s = 0; for k from 0: s = fma(left[i][k], right[k][j], s)
//   out[i][j] = plus ? fma(plus_factor, plus[i][j], factor * s) : factor * s
// One order of additions, so tiles, threads and instruction sets do not matter, and the product of
// a matrix and its transpose is symmetric to the bit.
#pragma once

#include "kernels/kernels.h"

namespace outrigger::kernels::reference {

void product(const Product& p, int64_t row, int64_t column);

}  // namespace outrigger::kernels::reference
