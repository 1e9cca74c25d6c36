// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/work.h"

#include <cstddef>
#include <utility>

namespace outrigger::plugins {
namespace {

Format moment_format_of(int32_t format) {
  return format == OTR_PLUGIN_BLOCK8            ? Format::block8
         : format == OTR_PLUGIN_POSITIVE_BLOCK8 ? Format::positive_block8
                                                : format_of(format);
}

kernels::UpdateScalars scalars_of(const otr_plugin_update& given) {
  kernels::UpdateScalars to;
  to.gradient_factor = given.gradient_factor;
  to.clip_value = given.clip_value;
  to.beta1 = given.beta1;
  to.one_minus_beta1 = given.one_minus_beta1;
  to.beta2 = given.beta2;
  to.one_minus_beta2 = given.one_minus_beta2;
  to.eps = given.eps;
  to.inverse_bias1 = given.inverse_bias1;
  to.inverse_sqrt_bias2 = given.inverse_sqrt_bias2;
  to.minus_step = given.minus_step;
  to.weight_decay = given.weight_decay;
  to.minus_lr_decay = given.minus_lr_decay;
  to.decoupled = given.decoupled != 0;
  to.nesterov = given.nesterov != 0;
  return to;
}

}  // namespace

void fail(int32_t status, std::string text) { throw Failure{status, std::move(text)}; }

Format format_of(int32_t format) {
  if (format < OTR_PLUGIN_FLOAT32 || format > OTR_PLUGIN_FLOAT64) {
    fail(OTR_E_DTYPE, "format " + std::to_string(format) + " is none of OTR_PLUGIN_FLOAT32 to 64");
  }
  return static_cast<Format>(format);
}

kernels::cuda::Conversion conversion_of(const otr_plugin_convert& given) {
  kernels::cuda::Conversion c{};
  c.to = given.to;
  c.from = given.from;
  c.to_format = format_of(given.to_format);
  c.from_format = format_of(given.from_format);
  c.factor = given.factor;
  c.add = given.add != 0;
  c.count = given.count;
  if (given.shape != nullptr && !kernels::cuda::set_dimensions(c, given.shape, given.to_strides,
                                                               given.from_strides, given.ndim)) {
    fail(OTR_E_UNSUPPORTED, "a conversion of " + std::to_string(given.ndim) +
                                " dimensions of which more than " +
                                std::to_string(kernels::cuda::kDimensions) + " are apart");
  }
  return c;
}

kernels::Fold fold_of(const otr_plugin_fold& given) {
  kernels::Fold f;
  f.sources = given.sources;
  f.world = given.world;
  f.source_format = format_of(given.source_format);
  f.accumulator = given.accumulator;
  f.accumulator_format = format_of(given.accumulator_format);
  f.add = given.add != 0;
  f.count = given.count;
  f.first_index = given.first_index;
  return f;
}

kernels::Product product_of(const otr_plugin_product& given) {
  kernels::Product p;
  p.left = given.left;
  p.right = given.right;
  p.plus = given.plus;
  p.out = given.out;
  p.rows = given.rows;
  p.inner = given.inner;
  p.columns = given.columns;
  p.factor = given.factor;
  p.plus_factor = given.plus_factor;
  return p;
}

using kernels::cuda::Decided;
static_assert(sizeof(Decided) == sizeof(otr_plugin_decision) &&
              offsetof(Decided, first_rank) ==
                  offsetof(otr_plugin_decision, total) + offsetof(otr_plugin_norm, first_rank) &&
              offsetof(Decided, norm) == offsetof(otr_plugin_decision, norm) &&
              offsetof(Decided, skip) == offsetof(otr_plugin_decision, skip) &&
              offsetof(Decided, counts) == offsetof(otr_plugin_decision, updates) &&
              sizeof(kernels::cuda::SumBlock) <= OTR_PLUGIN_SUM_BYTES);

kernels::cuda::Decide decide_of(const otr_plugin_decide& given) {
  return {given.mean, given.clipping, given.skip, given.skip_nonfinite};
}

kernels::cuda::SumBlock* sum_of(const otr_plugin_fold& given) {
  return static_cast<kernels::cuda::SumBlock*>(given.sum);
}

Decided* decided_of(otr_plugin_decision* decision) { return reinterpret_cast<Decided*>(decision); }

Use use_of(const otr_plugin_update& given) {
  if (given.rule < OTR_PLUGIN_ADAM || given.rule > OTR_PLUGIN_LAMB_NORMS) {
    fail(OTR_E_ARGUMENT, "rule " + std::to_string(given.rule) +
                             " is none of OTR_PLUGIN_ADAM to OTR_PLUGIN_LAMB_NORMS");
  }
  if (given.decision != nullptr && given.rule > OTR_PLUGIN_SGD) {
    fail(OTR_E_ARGUMENT,
         "rule " + std::to_string(given.rule) + " with a decision; that is for the elementwise");
  }
  return given.rule == OTR_PLUGIN_LAMB_NORMS ? Use::lamb_norms
         : given.rule == OTR_PLUGIN_MUON     ? Use::muon_direction
                                             : Use::update;
}

kernels::Update update_of(const otr_plugin_update& given) {
  const Use use = use_of(given);
  const auto rounding = [](int32_t r) { return static_cast<kernels::Rounding>(r); };
  kernels::Update a;
  a.rule = use == Use::lamb_norms ? kernels::Rule::lamb : static_cast<kernels::Rule>(given.rule);
  a.grad = given.grad;
  a.grad_format = format_of(given.grad_format);
  const bool split = given.weight_format == OTR_PLUGIN_SPLIT;
  a.weight_format = split ? Format::bfloat16 : format_of(given.weight_format);
  if (use != Use::muon_direction) {
    a.weight = given.weight;
    a.remainder = split ? static_cast<uint16_t*>(given.remainder) : nullptr;
  }
  a.exp_avg = given.exp_avg;
  a.exp_avg_sq = given.exp_avg_sq;
  a.exp_avg_format = moment_format_of(given.exp_avg_format);
  a.exp_avg_sq_format = moment_format_of(given.exp_avg_sq_format);
  a.exp_avg_scales = given.exp_avg_scales;
  a.exp_avg_sq_scales = given.exp_avg_sq_scales;
  if (use == Use::update && given.published != nullptr) {
    a.published = given.published;
    a.published_format = format_of(given.published_format);
  }
  a.weight_rounding = rounding(given.weight_rounding);
  a.exp_avg_rounding = rounding(given.exp_avg_rounding);
  a.exp_avg_sq_rounding = rounding(given.exp_avg_sq_rounding);
  a.count = given.count;
  a.scalars = scalars_of(given);
  a.random = {given.key, given.first_element, given.step};
  return a;
}

otr_plugin_norm written(const kernels::NormSum& norm, int32_t rank) {
  otr_plugin_norm out{};
  std::copy(norm.limbs.begin(), norm.limbs.end(), out.limbs);
  out.nonfinite = norm.nonfinite;
  out.first_nonfinite = norm.first_nonfinite;
  out.first_rank = rank;
  return out;
}

}  // namespace outrigger::plugins
