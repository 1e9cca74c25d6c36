// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace outrigger::test {

// Muon's orthogonal direction of a matrix, row by row: Newton-Schulz in plain loops, in the order
// of additions that kernels/reference/product.h gives.
[[nodiscard]] std::vector<float> orthogonal(const std::vector<float>& matrix, int64_t rows,
                                            int64_t columns);

}  // namespace outrigger::test
