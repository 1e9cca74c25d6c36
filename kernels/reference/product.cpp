// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/product.h"

#include <algorithm>
#include <cmath>

namespace outrigger::kernels::reference {

void product(const Product& p, int64_t row, int64_t column) {
  for (int64_t i = row; i < std::min(row + kProductTile, p.rows); ++i) {
    for (int64_t j = column; j < std::min(column + kProductTile, p.columns); ++j) {
      float sum = 0;
      for (int64_t k = 0; k < p.inner; ++k) {
        sum = std::fma(p.left[i * p.inner + k], p.right[k * p.columns + j], sum);
      }
      const float product = p.factor * sum;
      const int64_t at = i * p.columns + j;
      p.out[at] = p.plus == nullptr ? product : std::fma(p.plus_factor, p.plus[at], product);
    }
  }
}

}  // namespace outrigger::kernels::reference
