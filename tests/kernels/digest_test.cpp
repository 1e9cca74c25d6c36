// SPDX-License-Identifier: Apache-2.0
// One number made of what every kernel writes: the same on each instruction set, and, printed, the
// same on each machine (scripts/cross.sh compares). Inputs are made with integers and exact
// products only, since mathematical functions differ between systems.
#include <cstdio>

#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

constexpr int64_t kCount = 3 * kLeaf + 77;

class Digest {
 public:
  void add(const void* data, size_t size) {  // FNV-1a
    for (size_t i = 0; i < size; ++i) {
      sum_ = (sum_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
    }
  }
  void add(const Array& array) {
    add(array.at(), static_cast<size_t>(array.bytes()));
    add(array.scales(), static_cast<size_t>(array.blocks()) * sizeof(float));
  }
  void add(const NormSum& norm) {
    add(norm.limbs.data(), sizeof norm.limbs);
    add(&norm.nonfinite, sizeof norm.nonfinite);
    add(&norm.first_nonfinite, sizeof norm.first_nonfinite);
  }
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0xcbf29ce484222325;
};

// Of `any` every bit pattern, else numbers of a training run's sizes.
void fill_exactly(Array& array, Values values, uint64_t seed, bool positive = false) {
  if (values == Values::any) return fill(array, values, seed);
  std::mt19937_64 random(seed);
  std::vector<float> all(static_cast<size_t>(array.count()));
  for (float& x : all) {
    const auto mantissa = static_cast<float>(random() % (1 << 20));
    const float magnitude = mantissa * (random() % 2 == 0 ? 0x1p-22F : 0x1p-30F);
    x = positive || random() % 2 == 0 ? magnitude : -magnitude;
  }
  array.set_values(all);
}

void digest_elements(Digest& digest, Format to, Format from, Values values) {
  Array source(from, kCount, 1), into(to, kCount);
  fill_exactly(source, values, 1);
  convert(into.at(), to, source.at(), from, kCount);
  digest.add(into);
  scale(into.at(), to, source.at(), from, 0.3F, kCount);
  digest.add(into);
  add(into.at(), to, source.at(), from, kCount);
  digest.add(into);

  const void* sources[] = {source.at(), source.at(7)};
  NormSum norm;
  Fold f;
  f.sources = sources;
  f.world = 2;
  f.source_format = from;
  f.accumulator = into.at();
  f.accumulator_format = to;
  f.add = true;
  f.count = 2 * kLeaf;
  f.norm = &norm;
  fold(f);
  digest.add(into);
  digest.add(norm);
}

void digest_norm(Digest& digest, Format format, Values values) {
  Array x(format, kCount, 1);
  fill_exactly(x, values, 2);
  NormSum norm;
  sum_of_squares(norm, x.at(), format, kCount, 0);
  digest.add(norm);
}

void digest_composed(Digest& digest, Values values) {
  Array wide(Format::float32, kCount), published(Format::bfloat16, kCount);
  Array remainder(Format::split, kCount);
  fill_exactly(wide, values, 3);
  const auto* x = static_cast<const float*>(wide.at());
  for (const Format format : {Format::block8, Format::positive_block8}) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      Array blocks(format, kCount);
      pack(blocks.at(), blocks.scales(), format, x, kCount, {rounding, 77, 512, 3});
      digest.add(blocks);
      Array back(Format::float32, kCount);
      unpack(static_cast<float*>(back.at()), blocks.at(), blocks.scales(), format, kCount);
      digest.add(back);
    }
  }
  split(static_cast<uint16_t*>(published.at()), static_cast<uint16_t*>(remainder.at()), x, kCount);
  digest.add(published);
  digest.add(remainder);
}

void digest_update(Digest& digest, Rule rule, const AdamFormats& formats, Values values) {
  Parameter p(formats, kCount, 1, Values::any, 4);
  p.rule = rule;
  fill_exactly(p.weight, values, 5);
  fill_exactly(p.exp_avg, values, 6);
  fill_exactly(p.exp_avg_sq, values, 7, true);
  fill_exactly(p.grad, values, 8);
  if (rule == Rule::lamb) {
    NormSum weights, directions;
    lamb_norms(p.step(ordinary_scalars()), weights, directions);
    digest.add(weights);
    digest.add(directions);
  }
  const UpdateCount count = update(p.step(ordinary_scalars()));
  for (const Array* a : {&p.weight, &p.remainder, &p.exp_avg, &p.exp_avg_sq}) digest.add(*a);
  if (formats.weight == Format::float32) digest.add(p.published);
  digest.add(&count.updates, sizeof count.updates);
  digest.add(&count.vanished, sizeof count.vanished);
}

void digest_muon(Digest& digest, const AdamFormats& formats, Values values) {
  Parameter p(formats, kCount, 1, Values::any, 4);
  p.rule = Rule::muon;
  fill_exactly(p.exp_avg, values, 6);
  fill_exactly(p.grad, values, 8);
  Array direction(Format::float32, kCount);
  muon_direction(p.step(ordinary_scalars()), static_cast<float*>(direction.at()));
  digest.add(p.exp_avg);
  digest.add(direction);
}

void digest_product(Digest& digest) {
  constexpr int64_t kRows = 50, kInner = 133, kColumns = kProductTile + 5;
  Array left(Format::float32, kRows * kInner), right(Format::float32, kInner * kColumns);
  Array plus(Format::float32, kRows * kColumns), out(Format::float32, kRows * kColumns);
  for (Array* a : {&left, &right, &plus}) fill_exactly(*a, Values::ordinary, 9);
  const auto at = [](Array& a) { return static_cast<float*>(a.at()); };
  const Product whole{at(left), at(right), kRows, kInner, kColumns, 0.7F, at(plus), 0.3F, at(out)};
  product(whole, 0, 0);
  product(whole, 0, kProductTile);
  digest.add(out);
}

uint64_t digest_of_all() {
  Digest digest;
  for (const Values values : {Values::ordinary, Values::any}) {
    for (const Format to : kFormats) {
      for (const Format from : kFormats) digest_elements(digest, to, from, values);
      digest_norm(digest, to, values);
    }
    digest_composed(digest, values);
    for (const AdamFormats& formats : all_adam_formats()) {
      for (const Rule rule : {Rule::adam, Rule::adagrad, Rule::lion, Rule::sgd, Rule::lamb}) {
        digest_update(digest, rule, formats, values);
      }
      digest_muon(digest, formats, values);
    }
  }
  digest_product(digest);
  return digest.sum();
}

TEST(DigestTest, IsOneForAllInstructionSets) {
  const uint64_t want = digest_of_all();  // of the best
  for_each_target([&] {
    if (simd_name() == targets().front()) return;
    EXPECT_EQ(digest_of_all(), want);
  });
  std::printf("digest: %016llx\n", static_cast<unsigned long long>(want));
}

}  // namespace
}  // namespace outrigger::kernels::test
