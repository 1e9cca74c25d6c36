// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/orthogonal.h"

#include <cmath>
#include <functional>

#include "kernels/kernels.h"

namespace outrigger::test {
namespace {

using Matrix = std::vector<std::vector<float>>;

Matrix made(size_t rows, size_t columns, const std::function<float(size_t, size_t)>& element) {
  Matrix m(rows, std::vector<float>(columns));
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) m[i][j] = element(i, j);
  }
  return m;
}

float sum_of(size_t count, const std::function<float(size_t, float)>& add) {
  float sum = 0;
  for (size_t k = 0; k < count; ++k) sum = add(k, sum);
  return sum;
}

}  // namespace

std::vector<float> orthogonal(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  kernels::NormSum norm;
  kernels::sum_of_squares(norm, matrix.data(), kernels::Format::float32, rows * columns, 0);
  const auto factor = static_cast<float>(1 / (std::sqrt(kernels::value_of(norm)) + 1e-7));
  const bool tall = rows > columns;
  const auto m = static_cast<size_t>(tall ? columns : rows);
  const auto n = static_cast<size_t>(tall ? rows : columns);
  const auto at = [&](size_t i, size_t j) { return tall ? j * m + i : i * n + j; };
  Matrix x = made(m, n, [&](size_t i, size_t j) { return matrix[at(i, j)] * factor; });
  for (int step = 0; step < 5; ++step) {
    const Matrix a = made(m, m, [&](size_t i, size_t j) {
      return sum_of(n, [&](size_t k, float s) { return std::fma(x[i][k], x[j][k], s); });
    });
    const Matrix p = made(m, m, [&](size_t i, size_t j) {
      const float square =
          sum_of(m, [&](size_t k, float s) { return std::fma(a[i][k], a[k][j], s); });
      return std::fma(-4.7750F, a[i][j], 2.0315F * square);
    });
    x = made(m, n, [&](size_t i, size_t j) {
      const float sum = sum_of(m, [&](size_t k, float s) { return std::fma(p[i][k], x[k][j], s); });
      return std::fma(3.4445F, x[i][j], sum);
    });
  }
  std::vector<float> result(matrix.size());
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) result[at(i, j)] = x[i][j];
  }
  return result;
}

}  // namespace outrigger::test
