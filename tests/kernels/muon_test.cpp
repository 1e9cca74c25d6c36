// SPDX-License-Identifier: Apache-2.0
// What Muon is made of, its direction and matrix products: each instruction set against the oracle,
// and both against float64.
#include <cmath>

#include "kernels/reference/product.h"
#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

Parameter muon_parameter(const AdamFormats& formats, int64_t count, Values values) {
  Parameter p(formats, count, count % 3, values, 7);
  p.rule = Rule::muon;
  return p;
}

UpdateScalars muon_scalars(bool nesterov) {
  UpdateScalars s = ordinary_scalars();
  s.beta1 = 0.95F;
  s.one_minus_beta1 = 0.05F;
  s.nesterov = nesterov;
  return s;
}

TEST(Muon, EveryTargetHasTheOraclesDirection) {
  for_each_target([] {
    for (const AdamFormats& formats : all_adam_formats()) {
      if (formats.weight != Format::float32 || formats.exp_avg_sq != Format::float32) continue;
      for (const Values values : {Values::ordinary, Values::any}) {
        for (const int64_t count : {int64_t{1}, int64_t{31}, int64_t{512}, int64_t{515}}) {
          Parameter got = muon_parameter(formats, count, values), want = got;
          const UpdateScalars s = muon_scalars(count != 512);
          Array direction(Format::float32, count), expected(Format::float32, count);
          muon_direction(got.step(s), static_cast<float*>(direction.at()));
          reference::muon_direction(want.step(s), static_cast<float*>(expected.at()));
          expect_same_bits(direction, expected);
          expect_same_bits(got, want);
        }
      }
    }
  });
}

// Jordan et al. 2024; the momentum is an average, as in DeepSpeed and PyTorch.
TEST(Muon, DirectionFollowsThePublishedAlgorithm) {
  constexpr int64_t kCount = 300;
  for_each_target([] {
    for (const bool nesterov : {false, true}) {
      Parameter p = muon_parameter({}, kCount, Values::ordinary);
      std::vector<double> m(kCount);
      for (int64_t i = 0; i < kCount; ++i) p.exp_avg.set_value(i, 0);
      std::vector<float> direction(kCount);
      UpdateScalars s = muon_scalars(nesterov);
      s.gradient_factor = 1;
      for (int t = 1; t <= 30; ++t) {
        fill(p.grad, Values::ordinary, static_cast<uint64_t>(t));
        muon_direction(p.step(s), direction.data());
        for (size_t i = 0; i < kCount; ++i) {
          const auto g = static_cast<double>(p.grad.value(static_cast<int64_t>(i)));
          m[i] += 0.05 * (g - m[i]);
          const double d = nesterov ? g + 0.95 * (m[i] - g) : m[i];
          ASSERT_NEAR(static_cast<double>(direction[i]), d, 1e-6);
        }
      }
    }
  });
}

struct Shape {
  int64_t rows, inner, columns;
};
constexpr Shape kShapes[] = {{1, 1, 1},     {7, 3, 5},     {128, 128, 128}, {129, 97, 127},
                             {100, 257, 1}, {1, 300, 200}, {13, 128, 33},   {192, 64, 208}};

std::vector<float> numbers(int64_t count, uint64_t seed) {
  Array array(Format::float32, count);
  fill(array, Values::ordinary, seed);
  return array.values();
}

struct Case {
  explicit Case(const Shape& shape)
      : left(numbers(shape.rows * shape.inner, 1)),
        right(numbers(shape.inner * shape.columns, 2)),
        plus(numbers(shape.rows * shape.columns, 3)),
        out(plus.size(), -1),
        product{left.data(), right.data(), shape.rows, shape.inner, shape.columns,
                2.0315F,     plus.data(),  -4.775F,    out.data()} {}
  std::vector<float> left, right, plus, out;
  Product product;
};

template <class Tile>
void multiply(const Product& p, const Tile& tile) {
  for (int64_t row = 0; row < p.rows; row += kProductTile) {
    for (int64_t column = 0; column < p.columns; column += kProductTile) tile(p, row, column);
  }
}

TEST(Muon, EveryTargetHasTheOraclesProducts) {
  for_each_target([] {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(shape.rows);
      for (const bool adds : {false, true}) {
        Case got(shape), want(shape);
        if (!adds) got.product.plus = want.product.plus = nullptr;
        multiply(got.product, product);
        multiply(want.product, reference::product);
        EXPECT_EQ(std::memcmp(got.out.data(), want.out.data(), got.out.size() * sizeof(float)), 0);
      }
    }
  });
}

// A sum of n products of one rounding each is off by n units of the sum of their sizes at most.
TEST(Muon, ProductsAreNearThoseInFloat64) {
  for (const Shape& shape : kShapes) {
    Case c(shape);
    multiply(c.product, product);
    for (int64_t i = 0; i < shape.rows; ++i) {
      for (int64_t j = 0; j < shape.columns; ++j) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < shape.inner; ++k) {
          const double x = static_cast<double>(c.left[static_cast<size_t>(i * shape.inner + k)]) *
                           static_cast<double>(c.right[static_cast<size_t>(k * shape.columns + j)]);
          sum += x;
          size += std::fabs(x);
        }
        const auto at = static_cast<size_t>(i * shape.columns + j);
        const double plus = static_cast<double>(c.plus[at]);
        const double bound =
            0x1p-23 * (static_cast<double>(shape.inner + 2) * 2.04 * size + 4.8 * std::fabs(plus));
        ASSERT_NEAR(static_cast<double>(c.out[at]), 2.0315 * sum - 4.775 * plus, bound + 1e-30);
      }
    }
  }
}

TEST(Muon, ATileWritesNothingElse) {
  for_each_target([] {
    constexpr int64_t kTile = kProductTile, kSize = 2 * kTile + 8;
    Case c({kSize, 5, kSize});
    product(c.product, kTile, kTile);
    const auto is_in_tile = [](int64_t i) { return i >= kTile && i < 2 * kTile; };
    for (int64_t i = 0; i < kSize; ++i) {
      for (int64_t j = 0; j < kSize; ++j) {
        const bool inside = is_in_tile(i) && is_in_tile(j);
        ASSERT_EQ(c.out[static_cast<size_t>(i * kSize + j)] == -1, !inside) << i << ", " << j;
      }
    }
  });
}

TEST(Muon, TheProductWithTheTransposeIsSymmetric) {
  constexpr int64_t kRows = 130, kInner = 77;
  const std::vector<float> x = numbers(kRows * kInner, 5);
  std::vector<float> transpose(x.size()), out(kRows * kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t k = 0; k < kInner; ++k) {
      transpose[static_cast<size_t>(k * kRows + i)] = x[static_cast<size_t>(i * kInner + k)];
    }
  }
  for_each_target([&] {
    multiply({x.data(), transpose.data(), kRows, kInner, kRows, 1, nullptr, 0, out.data()},
             product);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        ASSERT_EQ(out[static_cast<size_t>(i * kRows + j)], out[static_cast<size_t>(j * kRows + i)]);
      }
    }
  });
}

}  // namespace
}  // namespace outrigger::kernels::test
