// SPDX-License-Identifier: Apache-2.0
// What a GPU runs, beside the oracle: every rule, format and rounding, ends of arrays and addresses
// off alignment, numbers of every bit pattern. cuda_runner.h says where.
#include <algorithm>

#include "kernels/cuda/fold.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/update.h"
#include "kernels/fold_origin.h"
#include "kernels/reference/product.h"
#include "tests/kernels/cuda_runner.h"
#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

void expect_same(const NormSum& got, const NormSum& want) {
  EXPECT_EQ(got.limbs, want.limbs);
  EXPECT_EQ(got.nonfinite, want.nonfinite);
  EXPECT_EQ(got.first_nonfinite, want.first_nonfinite);
}

// A count that ends within a lane's eight, one of whole leaves, one below a lane's.
constexpr int64_t kCounts[] = {5, 2 * kLeaf, 2 * kLeaf + 43};

template <class Body>
void for_each_case(const Body& body) {
  uint64_t seed = 1;
  for (const AdamFormats& f : all_adam_formats()) {
    for (const Values values : {Values::ordinary, Values::any}) {
      for (const int64_t count : kCounts) {
        for (const int64_t shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << name_of(f.weight) << ' ' << name_of(f.exp_avg) << ' '
                                            << name_of(f.exp_avg_sq) << ' ' << name_of(f.grad)
                                            << " x " << count << " + " << shift);
          seed += 10;
          body(Parameter(f, count, shift, values, seed));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(CudaKernels, EveryRuleHasTheOraclesBits) {
  for (const Rule rule : {Rule::adam, Rule::adagrad, Rule::lion, Rule::sgd, Rule::lamb}) {
    for_each_case([&](Parameter got) {
      got.rule = rule;
      got.momentum = got.weight.count() % 2 == 0;
      UpdateScalars scalars = ordinary_scalars();
      scalars.clip_value = 0.04F;
      scalars.decoupled = got.weight.count() % 2 == 1;
      scalars.nesterov = true;
      Parameter want = got;
      const UpdateCount one = runner::update(got.step(scalars));
      const UpdateCount other = reference::update(want.step(scalars));
      expect_same_bits(got, want);
      EXPECT_EQ(one.updates, other.updates);
      EXPECT_EQ(one.vanished, other.vanished);
    });
  }
}

AdamFormats formats_of(const cuda::Form& form) {
  AdamFormats f;
  f.weight = form.split ? Format::split : form.weight;
  f.exp_avg = form.exp_avg;
  f.exp_avg_sq = form.exp_avg_sq;
  f.grad = form.grad;
  f.weight_rounding = f.exp_avg_rounding = f.exp_avg_sq_rounding = form.rounding;
  return f;
}

// On a device each of these has a kernel of its own.
TEST(CudaKernels, EveryFormHasTheOraclesBits) {
  uint64_t seed = 1;
  for (int i = 0; i < cuda::kForms; ++i) {
    const cuda::Form& form = cuda::kFormList[i];
    const AdamFormats f = formats_of(form);
    for (const Values values : {Values::ordinary, Values::any}) {
      for (const int64_t count : {int64_t{5}, 2 * kLeaf, 70 * kLeaf + 43}) {
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << "form " << i << " x " << count << " + " << shift);
          Parameter got(f, count, shift, values, seed += 10);
          got.publish = form.publish;
          Parameter want = got;
          const UpdateScalars scalars = ordinary_scalars();
          EXPECT_EQ(cuda::form_of(got.step(scalars)), shift == 0 ? i : -1);
          const UpdateCount one = runner::update(got.step(scalars));
          const UpdateCount other = reference::update(want.step(scalars));
          expect_same_bits(got, want);
          EXPECT_EQ(one.updates, other.updates);
          EXPECT_EQ(one.vanished, other.vanished);
        }
      }
    }
  }
  AdamFormats f;
  f.grad = Format::bfloat16;
  Parameter other(f, 4, 0, Values::ordinary, 3);
  UpdateScalars scalars = ordinary_scalars();
  EXPECT_EQ(cuda::form_of(other.step(scalars)), 0);
  scalars.clip_value = 1;
  EXPECT_EQ(cuda::form_of(other.step(scalars)), -1);
  scalars = ordinary_scalars();
  scalars.decoupled = false;
  EXPECT_EQ(cuda::form_of(other.step(scalars)), -1);
  other.rule = Rule::lion;
  EXPECT_EQ(cuda::form_of(other.step(ordinary_scalars())), -1);
}

// In a leaf of ordinary numbers: a device's quick way must notice it.
TEST(CudaKernels, OneOddNumberOfALeafHasTheOraclesBits) {
  const uint32_t odd[] = {
      0x7fa10000, 0xffc10000, 0x7f800000, 0xff800000, 0x00000000, 0x80000000,  // NaN, Inf, 0
      0x00010000, 0x0d000000, 0x0d800000, 0x13000000, 0x13800000, 0x29000000,  // 2^-133 to 2^-45
      0x2b800000, 0x4e800000, 0x5d800000, 0x5e000000, 0x71800000, 0x72000000,
      0x7f7f0000};  // … 2^128
  const auto count = static_cast<int64_t>(std::size(odd)) * kLeaf;
  for (int i = 0; i < cuda::kForms; ++i) {
    const cuda::Form& form = cuda::kFormList[i];
    const AdamFormats f = formats_of(form);
    for (int where = 0; where < 4; ++where) {
      SCOPED_TRACE(::testing::Message() << "form " << i << ", array " << where);
      Parameter got(f, count, 0, Values::ordinary, static_cast<uint64_t>(100 * i + where));
      got.publish = form.publish;
      Array& array = where == 0   ? got.grad
                     : where == 1 ? got.weight
                     : where == 2 ? got.exp_avg
                                  : got.exp_avg_sq;
      for (int64_t leaf = 0; leaf < count / kLeaf; ++leaf) {
        const uint32_t bits = odd[leaf];
        const int64_t at = leaf * kLeaf + 37 * leaf % kLeaf;
        if (where > 0) got.grad.set_value(at, 0);
        if (is_block(array.format())) {
          array.scales()[leaf] = reference::float_of(bits);
        } else if (array.format() == Format::float32) {
          array.set(at, reference::float_of(bits));
        } else {
          array.set(at, static_cast<uint16_t>(bits >> 16));
        }
      }
      Parameter want = got;
      const UpdateScalars scalars = ordinary_scalars();
      EXPECT_EQ(cuda::form_of(got.step(scalars)), i);
      const UpdateCount one = runner::update(got.step(scalars));
      const UpdateCount other = reference::update(want.step(scalars));
      expect_same_bits(got, want);
      EXPECT_EQ(one.updates, other.updates);
      EXPECT_EQ(one.vanished, other.vanished);
    }
  }
}

// Steps too small for a bfloat16: most of them vanish, and stochastic rounding keeps some.
TEST(CudaKernels, CountsWhatVanishes) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    AdamFormats f;
    f.weight = Format::bfloat16;
    f.weight_rounding = rounding;
    Parameter got(f, 3 * kLeaf, 0, Values::ordinary, 4), want = got;
    UpdateScalars scalars = ordinary_scalars();
    scalars.minus_step = -1e-5F;
    const UpdateCount one = runner::update(got.step(scalars));
    const UpdateCount other = reference::update(want.step(scalars));
    EXPECT_EQ(one.vanished, other.vanished);
    EXPECT_GT(one.vanished, 0);
    EXPECT_LT(one.vanished, one.updates);
    expect_same_bits(got, want);
  }
}

TEST(CudaKernels, LambsNormsAndMuonsDirectionHaveTheOraclesBits) {
  for_each_case([](Parameter got) {
    const UpdateScalars scalars = ordinary_scalars();
    got.rule = Rule::lamb;
    Parameter want = got, muon = got, muon_want = got;
    NormSum weights, directions, weights_want, directions_want;
    runner::lamb_norms(got.step(scalars), weights, directions);
    reference::lamb_norms(want.step(scalars), weights_want, directions_want);
    expect_same_bits(got, want);
    expect_same(weights, weights_want);
    expect_same(directions, directions_want);

    muon.rule = muon_want.rule = Rule::muon;
    const auto count = static_cast<size_t>(muon.weight.count());
    std::vector<float> direction(count), direction_want(count);
    runner::muon_direction(muon.step(scalars), direction.data());
    reference::muon_direction(muon_want.step(scalars), direction_want.data());
    expect_same_bits(muon, muon_want);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(reference::bits_of(direction[i]), reference::bits_of(direction_want[i])) << i;
    }
  });
}

constexpr Format kSums[] = {Format::float32, Format::bfloat16, Format::float16};

TEST(CudaKernels, AFoldHasTheOraclesBitsNormAndCulprit) {
  uint64_t seed = 1;
  for (const Format source : kSums) {
    for (const Format accumulator : kSums) {
      for (const int32_t world : {1, 2, 3, 5}) {
        for (const bool add : {false, true}) {
          for (const Values values : {Values::ordinary, Values::any}) {
            SCOPED_TRACE(::testing::Message() << name_of(source) << ' ' << name_of(accumulator)
                                              << ' ' << world << (add ? " add" : ""));
            constexpr int64_t kCount = 3 * kLeaf;
            std::vector<Array> ranks;
            for (int32_t r = 0; r < world; ++r) {
              ranks.emplace_back(source, kCount, r % 2);
              fill(ranks.back(), values, ++seed);
            }
            Array got(accumulator, kCount, world % 2);
            fill(got, values, ++seed);
            Array want = got;
            std::vector<const void*> sources;
            for (const Array& rank : ranks) sources.push_back(rank.at());
            NormSum norm;
            Fold fold;
            fold.sources = sources.data();
            fold.world = world;
            fold.source_format = source;
            fold.accumulator = want.at();
            fold.accumulator_format = accumulator;
            fold.add = add;
            fold.count = kCount;
            fold.first_index = (int64_t{1} << 40) + 512;
            fold.norm = &norm;
            std::vector<std::byte> kept;
            const Origin origin = fold_with_origin(fold, sources, kept);
            NormSum got_norm;
            fold.accumulator = got.at();
            fold.norm = &got_norm;
            const Origin got_origin = runner::fold(fold);
            expect_same_bits(got, want);
            expect_same(got_norm, norm);
            EXPECT_EQ(got_origin.index, origin.index);
            EXPECT_EQ(got_origin.rank, origin.rank);
            if (values == Values::any) {
              EXPECT_GT(norm.nonfinite, 0);
            }
          }
        }
      }
    }
  }
}

// Of one source that is the accumulator itself, and of none: the norm alone, of any count.
TEST(CudaKernels, ANormAloneHasTheOraclesBits) {
  uint64_t seed = 1;
  for (const Format format : kSums) {
    for (const Values values : {Values::ordinary, Values::any}) {
      for (const int64_t count : kSizes) {
        Array data(format, count, count % 3);
        fill(data, values, ++seed);
        const Array before = data;
        NormSum norm;
        reference::sum_of_squares(norm, data.at(), format, count, 7);
        Fold fold;
        fold.world = 0;
        fold.accumulator = data.at();
        fold.accumulator_format = format;
        fold.count = count;
        fold.first_index = 7;
        NormSum got;
        fold.norm = &got;
        runner::fold(fold);
        expect_same(got, norm);
        expect_same_bits(data, before);
      }
    }
  }
}

// Digits that have not been carried, from several blocks in any order.
TEST(CudaKernels, BlocksOfASumAreOneSum) {
  constexpr int64_t kCount = 4000 * kLeaf;
  Array data(Format::float32, kCount);
  fill(data, Values::ordinary, 5);
  for (int64_t i = 0; i < kCount; i += 1000) data.set_value(i, 0x1p120F);
  for (int64_t i = 1; i < kCount; i += 1000) data.set_value(i, 0x1p-149F);
  NormSum want;
  reference::sum_of_squares(want, data.at(), Format::float32, kCount, 0);
  Fold fold;
  fold.world = 0;
  fold.accumulator = data.at();
  fold.count = kCount;
  cuda::NormBlock all, parts[7];
  for (int64_t warp = 7; warp-- > 0;) {
    cuda::fold_of_warp<cuda::Float32>(fold, warp, 7, true, parts[warp % 3]);
  }
  for (const cuda::NormBlock& part : parts) cuda::merge(all, part);
  expect_same(cuda::carried(all), want);
  EXPECT_TRUE(std::ranges::any_of(all.digits, [](uint64_t d) { return d >> 32 != 0; }))
      << "something to carry";
}

// Any digits are the integer that they stand for.
TEST(CudaKernels, DigitsAreCarried) {
  std::mt19937_64 random(7);
  for (int n = 0; n < 200; ++n) {
    cuda::NormBlock block;
    NormSum want;
    for (int d = 0; d < 18; ++d) {
      block.digits[d] = n % 2 == 0 ? random() : ~uint64_t{0} >> random() % 40;
      add_at(want.limbs, block.digits[d], 32 * d);
    }
    EXPECT_EQ(cuda::carried(block).limbs, want.limbs);
  }
}

TEST(CudaKernels, AConversionHasTheOraclesBits) {
  uint64_t seed = 1;
  for (const Format to : kFormats) {
    for (const Format from : kFormats) {
      for (const int64_t count : kSizes) {
        for (const int how : {0, 1, 2}) {  // to nearest, by a factor, added
          SCOPED_TRACE(::testing::Message()
                       << name_of(from) << " to " << name_of(to) << " x " << count << ", " << how);
          Array source(from, count, 1), got(to, count, count % 2);
          fill(source, Values::any, ++seed);
          fill(got, Values::any, ++seed);
          Array want = got;
          const float factor = how == 1 ? 0.37F : 1.0F;
          cuda::Conversion c{};
          c.to = got.at();
          c.from = source.at();
          c.to_format = to;
          c.from_format = from;
          c.add = how == 2;
          c.factor = factor;
          c.count = count;
          runner::convert(c);
          if (how == 0) reference::convert(want.at(), to, source.at(), from, count);
          if (how == 1) reference::scale(want.at(), to, source.at(), from, factor, count);
          if (how == 2) reference::add(want.at(), to, source.at(), from, count);
          expect_same_bits(got, want);
        }
      }
    }
  }
}

// A transposed view of three dimensions into a gapped one.
TEST(CudaKernels, AConversionFollowsStrides) {
  constexpr int64_t kShape[] = {3, 5, 41};
  constexpr int64_t kFrom[] = {1, 3, 15}, kTo[] = {600, 100, 2};
  Array source(Format::float32, 3 * 5 * 41), got(Format::bfloat16, 1800);
  fill(source, Values::ordinary, 3);
  fill(got, Values::ordinary, 4);
  Array want = got;
  cuda::Conversion c{};
  c.to = got.at();
  c.from = source.at();
  c.to_format = Format::bfloat16;
  c.factor = 3;
  ASSERT_TRUE(cuda::set_dimensions(c, kShape, kTo, kFrom, 3));
  EXPECT_EQ(c.count, source.count());
  runner::convert(c);
  for (int64_t x = 0; x < 3; ++x) {
    for (int64_t y = 0; y < 5; ++y) {
      for (int64_t z = 0; z < 41; ++z) {
        want.set_value(x * 600 + y * 100 + z * 2, source.value(x + y * 3 + z * 15) * 3);
      }
    }
  }
  expect_same_bits(got, want);
}

// Of 1 × 3 × 4 × 1 × 5, row-major on both sides, one is left; a gap or a turn keeps dimensions.
TEST(CudaKernels, DimensionsBecomeOneWhereTheyCan) {
  cuda::Conversion c{};
  const int64_t shape[] = {1, 3, 4, 1, 5}, plain[] = {60, 20, 5, 5, 1}, gap[] = {99, 30, 5, 7, 1};
  ASSERT_TRUE(cuda::set_dimensions(c, shape, plain, plain, 5));
  EXPECT_EQ(c.ndim, 0);
  EXPECT_EQ(c.count, 60);
  ASSERT_TRUE(cuda::set_dimensions(c, shape, plain, gap, 5));
  ASSERT_EQ(c.ndim, 2);
  EXPECT_EQ(c.shape[0], 3);
  EXPECT_EQ(c.shape[1], 20);
  EXPECT_EQ(c.to_strides[0], 20);
  EXPECT_EQ(c.from_strides[0], 30);
  EXPECT_EQ(c.from_strides[1], 1);
  ASSERT_TRUE(cuda::set_dimensions(c, nullptr, nullptr, nullptr, 0));
  EXPECT_EQ(c.count, 1);
  std::vector<int64_t> twos(17, 2), far(17, 1000);
  EXPECT_FALSE(cuda::set_dimensions(c, twos.data(), far.data(), far.data(), 17));
}

TEST(CudaKernels, AProductHasTheOraclesBits) {
  struct Sizes {
    int64_t rows, inner, columns;
  };
  uint64_t seed = 1;
  for (const auto& [rows, inner, columns] :
       {Sizes{1, 1, 1}, {64, 16, 64}, {65, 17, 63}, {130, 100, 7}, {3, 0, 4}, {70, 33, 129}}) {
    for (const bool plus : {false, true}) {
      SCOPED_TRACE(::testing::Message() << rows << ' ' << inner << ' ' << columns << plus);
      Array left(Format::float32, rows * inner), right(Format::float32, inner * columns),
          more(Format::float32, rows * columns), got(Format::float32, rows * columns);
      fill(left, Values::ordinary, ++seed);
      fill(right, Values::ordinary, ++seed);
      fill(more, Values::ordinary, ++seed);
      for (int64_t k = 0; k < inner; ++k) {  // a sum that rounds to a negative zero
        left.set_value(k, -1e-30F);
        right.set_value(k * columns, 1e-30F);
      }
      Array want = got;
      Product p;
      p.left = static_cast<const float*>(left.at());
      p.right = static_cast<const float*>(right.at());
      p.rows = rows;
      p.inner = inner;
      p.columns = columns;
      p.factor = -1.5F;
      p.plus = plus ? static_cast<const float*>(more.at()) : nullptr;
      p.plus_factor = 0.75F;
      p.out = static_cast<float*>(got.at());
      runner::product(p);
      p.out = static_cast<float*>(want.at());
      for (int64_t row = 0; row < rows; row += kProductTile) {
        for (int64_t column = 0; column < columns; column += kProductTile) {
          reference::product(p, row, column);
        }
      }
      expect_same_bits(got, want);
    }
  }
}

}  // namespace
}  // namespace outrigger::kernels::test
