// SPDX-License-Identifier: Apache-2.0
#include "core/device/plugin_described.h"

#include <algorithm>
#include <iterator>

namespace outrigger::device {
int32_t code_of(Format format) { return static_cast<int32_t>(format); }

namespace {

static_assert(static_cast<int32_t>(Format::float32) == OTR_PLUGIN_FLOAT32 &&
              static_cast<int32_t>(Format::bfloat16) == OTR_PLUGIN_BFLOAT16 &&
              static_cast<int32_t>(Format::float16) == OTR_PLUGIN_FLOAT16 &&
              static_cast<int32_t>(Format::float64) == OTR_PLUGIN_FLOAT64 &&
              static_cast<int32_t>(Format::split) == OTR_PLUGIN_SPLIT &&
              static_cast<int32_t>(Format::block8) == OTR_PLUGIN_BLOCK8 &&
              static_cast<int32_t>(Format::positive_block8) == OTR_PLUGIN_POSITIVE_BLOCK8);
int32_t code_of(kernels::Rounding rounding) { return static_cast<int32_t>(rounding); }
static_assert(static_cast<int32_t>(kernels::Rounding::nearest) == OTR_PLUGIN_NEAREST &&
              static_cast<int32_t>(kernels::Rounding::stochastic) == OTR_PLUGIN_STOCHASTIC);

int32_t rule_code_of(kernels::Rule rule) {
  static_assert(static_cast<int32_t>(kernels::Rule::sgd) == OTR_PLUGIN_SGD &&
                static_cast<int32_t>(kernels::Rule::lamb) == OTR_PLUGIN_LAMB &&
                static_cast<int32_t>(kernels::Rule::muon) == OTR_PLUGIN_MUON);
  return static_cast<int32_t>(rule);
}

}  // namespace

otr_plugin_convert described(void* to, Format to_format, const void* from, Format from_format,
                             float factor, int64_t count) {
  otr_plugin_convert c{};
  c.struct_size = sizeof c;
  c.to = to;
  c.from = from;
  c.to_format = code_of(to_format);
  c.from_format = code_of(from_format);
  c.count = count;
  c.factor = factor;
  return c;
}

otr_plugin_update described(const kernels::Update& a) {
  const kernels::UpdateScalars& s = a.scalars;
  otr_plugin_update p{};
  p.struct_size = sizeof p;
  p.rule = rule_code_of(a.rule);
  p.grad = a.grad;
  p.weight = a.weight;
  p.exp_avg = a.exp_avg;
  p.exp_avg_sq = a.exp_avg_sq;
  p.published = a.published;
  p.remainder = a.remainder;
  p.exp_avg_scales = a.exp_avg_scales;
  p.exp_avg_sq_scales = a.exp_avg_sq_scales;
  p.grad_format = code_of(a.grad_format);
  p.weight_format = code_of(a.remainder == nullptr ? a.weight_format : Format::split);
  p.exp_avg_format = code_of(a.exp_avg_format);
  p.exp_avg_sq_format = code_of(a.exp_avg_sq_format);
  p.published_format = code_of(a.published_format);
  p.weight_rounding = code_of(a.weight_rounding);
  p.exp_avg_rounding = code_of(a.exp_avg_rounding);
  p.exp_avg_sq_rounding = code_of(a.exp_avg_sq_rounding);
  p.count = a.count;
  p.gradient_factor = s.gradient_factor;
  p.clip_value = s.clip_value;
  p.beta1 = s.beta1;
  p.one_minus_beta1 = s.one_minus_beta1;
  p.beta2 = s.beta2;
  p.one_minus_beta2 = s.one_minus_beta2;
  p.eps = s.eps;
  p.inverse_bias1 = s.inverse_bias1;
  p.inverse_sqrt_bias2 = s.inverse_sqrt_bias2;
  p.minus_step = s.minus_step;
  p.weight_decay = s.weight_decay;
  p.minus_lr_decay = s.minus_lr_decay;
  p.decoupled = s.decoupled ? 1 : 0;
  p.nesterov = s.nesterov ? 1 : 0;
  p.key = a.random.key;
  p.first_element = a.random.first_element;
  p.step = a.random.step;
  return p;
}

otr_plugin_fold described(const SliceFold& slice) {
  otr_plugin_fold fold{};
  fold.struct_size = sizeof fold;
  fold.sources = slice.sources.data();
  fold.world = static_cast<int32_t>(slice.sources.size());
  fold.source_format = code_of(slice.source_format);
  fold.accumulator = slice.accumulator;
  fold.accumulator_format = code_of(slice.accumulator_format);
  fold.add = slice.add ? 1 : 0;
  fold.count = slice.count;
  fold.first_index = slice.flat;
  return fold;
}

kernels::NormSum sum_of(const otr_plugin_norm& norm) {
  kernels::NormSum sum;
  std::copy(std::begin(norm.limbs), std::end(norm.limbs), sum.limbs.begin());
  sum.nonfinite = norm.nonfinite;
  sum.first_nonfinite = norm.first_nonfinite;
  return sum;
}

}  // namespace outrigger::device
