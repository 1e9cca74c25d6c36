// SPDX-License-Identifier: Apache-2.0
// A parameter's arrays in chosen formats, and one step over them or a slice of them.
#pragma once

#include "kernels/reference/update.h"
#include "tests/kernels/support.h"

namespace outrigger::kernels::test {

struct AdamFormats {
  Format weight = Format::float32, exp_avg = Format::float32, exp_avg_sq = Format::float32;
  Format grad = Format::float32;
  Rounding weight_rounding = Rounding::nearest, exp_avg_rounding = Rounding::nearest,
           exp_avg_sq_rounding = Rounding::nearest;
};

// float32, and bfloat16 and 8-bit blocks nearest and stochastic for each moment; the same but
// blocks, float16 and split for the weight; gradients in each format.
inline std::vector<AdamFormats> all_adam_formats() {
  struct Choice {
    Format format;
    Rounding rounding;
  };
  const std::vector<Choice> choices = {{Format::float32, Rounding::nearest},
                                       {Format::bfloat16, Rounding::nearest},
                                       {Format::bfloat16, Rounding::stochastic}};
  std::vector<Choice> weights = choices, moments = choices, squares = choices;
  weights.push_back({Format::float16, Rounding::nearest});
  weights.push_back({Format::split, Rounding::nearest});
  for (const Rounding r : {Rounding::nearest, Rounding::stochastic}) {
    moments.push_back({Format::block8, r});
    squares.push_back({Format::positive_block8, r});
  }
  std::vector<AdamFormats> all;
  for (const Choice& w : weights) {
    for (const Choice& m : moments) {
      for (const Choice& v : squares) {
        for (const Format g : {Format::float32, Format::bfloat16, Format::float16}) {
          all.push_back({w.format, m.format, v.format, g, w.rounding, m.rounding, v.rounding});
        }
      }
    }
  }
  return all;
}

inline UpdateScalars ordinary_scalars() {
  UpdateScalars s;
  s.gradient_factor = 0.37F;
  s.inverse_sqrt_bias2 = 1.7F;
  s.minus_step = -3e-3F;
  s.weight_decay = 0.05F;
  s.minus_lr_decay = -1e-4F;
  return s;
}

struct Parameter {
  Parameter(const AdamFormats& f, int64_t count, int64_t shift, Values values, uint64_t seed)
      : formats(f),
        weight(f.weight == Format::split ? Format::bfloat16 : f.weight, count, shift),
        remainder(Format::split, count, shift),
        exp_avg(f.exp_avg, count, shift),
        exp_avg_sq(f.exp_avg_sq, count, shift),
        grad(f.grad, count, shift),
        published(f.grad == Format::float16 ? Format::float16 : Format::bfloat16, count, shift) {
    fill(weight, values, seed);
    fill(exp_avg, values, seed + 1);
    fill(exp_avg_sq, values, seed + 2);
    fill(grad, values, seed + 3);
    if (values == Values::ordinary) {  // a second moment is not negative
      std::vector<float> squares = exp_avg_sq.values();
      for (float& x : squares) x = std::fabs(x);
      exp_avg_sq.set_values(squares);
    }
    for (int64_t i = 0; i < count; ++i) remainder.set(i, static_cast<uint16_t>(seed += 0x9e37));
    random.key = 0x1111222233334444;
    random.first_element = (uint64_t{1} << 35) - 512;  // the block counter passes 2^32 on the way
    random.step = (uint64_t{3} << 32) + 7;
  }

  // The step over elements [first, first + count).
  Update step(const UpdateScalars& scalars, int64_t first, int64_t count) {
    Update a;
    a.grad = grad.at(first);
    a.grad_format = formats.grad;
    a.weight = weight.at(first);
    a.weight_format = weight.format();
    if (formats.weight == Format::split) a.remainder = static_cast<uint16_t*>(remainder.at(first));
    a.rule = rule;
    if (has_exp_avg(rule, momentum)) a.exp_avg = exp_avg.at(first);
    a.exp_avg_scales = exp_avg.scales(first);
    a.exp_avg_format = formats.exp_avg;
    if (has_exp_avg_sq(rule)) a.exp_avg_sq = exp_avg_sq.at(first);
    a.exp_avg_sq_scales = exp_avg_sq.scales(first);
    a.exp_avg_sq_format = formats.exp_avg_sq;
    a.weight_rounding = formats.weight_rounding;
    a.exp_avg_rounding = formats.exp_avg_rounding;
    a.exp_avg_sq_rounding = formats.exp_avg_sq_rounding;
    a.published = publish ? published.at(first) : nullptr;
    a.published_format = published.format();
    a.count = count;
    a.scalars = scalars;
    a.random = random;
    a.random.first_element += static_cast<uint64_t>(first);
    return a;
  }
  Update step(const UpdateScalars& scalars) { return step(scalars, 0, weight.count()); }

  AdamFormats formats;
  Array weight, remainder, exp_avg, exp_avg_sq, grad, published;
  RandomStream random;
  bool publish = true;
  Rule rule = Rule::adam;
  bool momentum = true;  // of SGD
};

inline void expect_same_bits(const Parameter& got, const Parameter& want) {
  {
    SCOPED_TRACE("weight");
    expect_same_bits(got.weight, want.weight);
  }
  {
    SCOPED_TRACE("remainder");
    expect_same_bits(got.remainder, want.remainder);
  }
  {
    SCOPED_TRACE("exp_avg");
    expect_same_bits(got.exp_avg, want.exp_avg);
  }
  {
    SCOPED_TRACE("exp_avg_sq");
    expect_same_bits(got.exp_avg_sq, want.exp_avg_sq);
  }
  SCOPED_TRACE("published");
  expect_same_bits(got.published, want.published);
}

}  // namespace outrigger::kernels::test
