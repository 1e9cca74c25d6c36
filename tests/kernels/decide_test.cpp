// SPDX-License-Identifier: Apache-2.0
// What a device decides by itself, with its lanes in a loop, beside the oracle's folds and the
// formulas of reference/decide.h, written once more.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cuda/on_lanes.h"
#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

namespace on_lanes = cuda::on_lanes;

constexpr int64_t kStride = 256, kRun = 3 * kLeaf;
static_assert(sizeof(cuda::SumBlock) <= kStride);

// Of so many runs, whatever was in the memory before.
struct Sums {
  explicit Sums(int64_t runs) : bytes(static_cast<size_t>(runs * kStride), 0x5a) {}
  cuda::SumBlock& at(int64_t run) {
    return *reinterpret_cast<cuda::SumBlock*>(bytes.data() + run * kStride);
  }
  cuda::Decided decided(const cuda::Decide& how) const {
    cuda::Decided out;
    out.counts.updates = 77;
    on_lanes::decide(how, bytes.data(), kStride, static_cast<int64_t>(bytes.size()) / kStride, out);
    return out;
  }
  std::vector<unsigned char> bytes;
};

// One rank's run: acc = data, or acc += data.
void fold_run(Sums& sums, int64_t run, Array& sum, const Array& data, bool add) {
  const void* const source = data.at();
  Fold fold;
  fold.sources = &source;
  fold.source_format = Format::float32;
  fold.accumulator = sum.at();
  fold.add = add;
  fold.count = kRun;
  fold.first_index = run * kRun;
  on_lanes::fold(fold, sums.at(run));
}

TEST(CudaDecide, ANormIsThatOfAllRuns) {
  constexpr int64_t kRuns = 5;
  uint64_t seed = 3;
  for (const double clipping : {0.0, 0.5, 1e9}) {
    for (const double mean : {1.0, 1.0 / 3, 0x1p-40}) {
      Sums sums(kRuns);
      NormSum want;
      long double about = 0;
      for (int64_t run = 0; run < kRuns; ++run) {
        Array sum(Format::float32, kRun), data(Format::float32, kRun);
        for (const bool add : {false, true}) {
          fill(data, Values::ordinary, ++seed);
          fold_run(sums, run, sum, data, add);
        }
        reference::sum_of_squares(want, sum.at(), Format::float32, kRun, 0);
        for (const float x : sum.values()) about += static_cast<long double>(x) * x;
      }
      const cuda::Decided got =
          sums.decided({.mean = mean, .clipping = clipping, .skip = 0, .skip_nonfinite = 2});
      EXPECT_TRUE(std::ranges::equal(got.limbs, want.limbs));
      EXPECT_EQ(got.nonfinite, 0);
      EXPECT_EQ(got.first_nonfinite, -1);
      EXPECT_EQ(got.first_rank, -1);
      const double norm = std::sqrt(value_of(want)) * mean;
      EXPECT_EQ(got.norm, norm);
      EXPECT_NEAR(got.norm, static_cast<double>(std::sqrt(about)) * mean, norm * 1e-15);
      const double clip = clipping > 0 ? std::min(1.0, clipping / (norm + 1e-6)) : 1;
      EXPECT_EQ(got.clip, clip);
      EXPECT_EQ(got.gradient_factor, static_cast<float>(mean * clip));
      EXPECT_EQ(got.skip, 0);
      EXPECT_EQ(got.counts.updates, 0U);
      if (clipping == 0.5 && mean == 1) {
        EXPECT_LT(clip, 1);
      }
    }
  }
}

// What is not finite stays so as passes add up: the first element, and the rank that brought it in.
TEST(CudaDecide, TellsWhatIsNotFinite) {
  Sums sums(2);
  Array first(Format::float32, kRun), second(Format::float32, kRun), data(Format::float32, kRun);
  data.set_value(700, HUGE_VALF);
  fold_run(sums, 0, first, data, false);
  data.set_value(700, -1);
  fold_run(sums, 0, first, data, true);  // the rank's own part is finite now
  data.set_value(9, -HUGE_VALF);
  fold_run(sums, 1, second, data, false);
  for (const int32_t skip : {0, 3}) {
    const cuda::Decided got =
        sums.decided({.mean = 0.5, .clipping = 1, .skip = skip, .skip_nonfinite = 2});
    EXPECT_EQ(got.nonfinite, 2);
    EXPECT_EQ(got.first_nonfinite, 700);
    EXPECT_EQ(got.first_rank, 0);
    EXPECT_EQ(got.norm, HUGE_VAL);
    EXPECT_EQ(got.clip, 1);
    EXPECT_EQ(got.skip, skip == 0 ? 2 : skip);
  }
  EXPECT_EQ(sums.decided({.mean = 1, .clipping = 0, .skip = 0, .skip_nonfinite = 0}).skip, 0);
  // Sums that overflow are nobody's.
  Array large(Format::float32, kRun), more(Format::float32, kRun);
  large.set_value(5, 3e38F);
  fold_run(sums, 0, more, large, false);
  fold_run(sums, 0, more, large, true);
  fold_run(sums, 1, second, large, false);
  const cuda::Decided got = sums.decided({});
  EXPECT_EQ(got.nonfinite, 1);
  EXPECT_EQ(got.first_nonfinite, 5);
  EXPECT_EQ(got.first_rank, -1);
}

TEST(CudaDecide, AnUpdateTakesItsFactorFromTheDecision) {
  for (const Rule rule : {Rule::adam, Rule::adagrad, Rule::lion, Rule::sgd}) {
    Parameter got(AdamFormats{}, kRun + 5, 0, Values::ordinary, 4);
    got.rule = rule;
    Parameter want = got, untouched = got;
    UpdateScalars scalars = ordinary_scalars();
    cuda::Decided decided;
    decided.gradient_factor = 0.21F;
    decided.counts.updates = 3;
    Update update = got.step(scalars);
    update.scalars.gradient_factor = 5;
    on_lanes::update(update, decided);
    scalars.gradient_factor = 0.21F;
    const UpdateCount count = reference::update(want.step(scalars));
    expect_same_bits(got, want);
    EXPECT_EQ(decided.counts.updates, static_cast<uint64_t>(count.updates) + 3);
    EXPECT_EQ(decided.counts.vanished, static_cast<uint64_t>(count.vanished));

    Parameter left = untouched;
    decided.skip = 2;
    on_lanes::update(left.step(scalars), decided);
    expect_same_bits(left, untouched);
    EXPECT_EQ(decided.counts.updates, static_cast<uint64_t>(count.updates) + 3);
  }
}

}  // namespace
}  // namespace outrigger::kernels::test
