// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/shard.h"

#include <cmath>

#include "core/context/error.h"
#include "core/optimizer/adam.h"
#include "core/optimizer/random_key.h"

namespace outrigger::optimizer {
namespace {

using kernels::Format;

tensor::View flat_view(const otr_tensor& t, const char* what) {
  tensor::View view = tensor::check(t, what);
  if (view.shape.size() != 1 || !view.contiguous) {
    fail(OTR_E_SHAPE, "{} has shape {}{}; a shard takes contiguous 1-D tensors", what,
         tensor::text_of(view.shape), view.contiguous ? "" : " with gaps");
  }
  if (view.format == Format::float64) {
    fail(OTR_E_DTYPE, "{} is {}; a shard takes float32, bfloat16 or float16", what,
         tensor::name_of(view.format));
  }
  return view;
}

}  // namespace

std::shared_ptr<Shard> wrap_shard(std::shared_ptr<Context> context, const otr_tensor& weights,
                                  const otr_tensor& grads, const otr_shard_options& options) {
  auto shard = std::make_shared<Shard>();
  shard->context = std::move(context);
  shard->weights = flat_view(weights, "weights");
  shard->grads = flat_view(grads, "grads");
  if (shard->grads.count != shard->weights.count) {
    fail(OTR_E_SHAPE, "grads has {} elements, weights {}: they must be equal", shard->grads.count,
         shard->weights.count);
  }
  if (options.published != nullptr) {
    shard->published = flat_view(*options.published, "published");
    if (shard->published->format == Format::float32 || shard->weights.format != Format::float32) {
      fail(OTR_E_DTYPE,
           "published is {} beside {} weights; it is the bfloat16 or float16 copy of float32 "
           "weights",
           tensor::name_of(shard->published->format), tensor::name_of(shard->weights.format));
    }
    if (shard->published->count != shard->weights.count) {
      fail(OTR_E_SHAPE, "published has {} elements, weights {}: they must be equal",
           shard->published->count, shard->weights.count);
    }
  }
  if (options.first_element < 0 || options.first_element % kernels::kLeaf != 0) {
    fail(OTR_E_ARGUMENT, "first_element = {}; legal is a multiple of {} from 0",
         options.first_element, kernels::kLeaf);
  }
  shard->name = options.name == nullptr ? "shard" : options.name;
  shard->first_element = options.first_element;
  return shard;
}

Optimizer::Optimizer(std::shared_ptr<Context> context, std::string_view json)
    : context_(std::move(context)),
      config_(config::parse_optimizer(json)),
      workers_(context_->workers()) {
  for (const std::string& warning : config_.warnings) context_->log(OTR_LOG_WARNING, warning);
}

void Optimizer::check(const Shard& shard, size_t index) const {
  const Format m = config_.exp_avg.format;
  const Format v = config_.exp_avg_sq.format;
  if (config_.master_given && config_.master.format != shard.weights.format) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") has {} weights, this optimizer's \"states\" ask for a {} master", index,
         shard.name, tensor::name_of(shard.weights.format), tensor::name_of(config_.master.format));
  }
  if (shard.has_states && (shard.exp_avg_format != m || shard.exp_avg_sq_format != v)) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") has states in {} and {} from an earlier step, this optimizer keeps {} "
         "and {}: step a shard with one set of formats",
         index, shard.name, tensor::name_of(shard.exp_avg_format),
         tensor::name_of(shard.exp_avg_sq_format), tensor::name_of(m), tensor::name_of(v));
  }
}

void Optimizer::allocate(Shard& shard) const {
  if (shard.has_states) return;
  const auto bytes = [&](Format f) {
    return shard.weights.count * static_cast<int64_t>(kernels::size_of(f));
  };
  shard.exp_avg_format = config_.exp_avg.format;
  shard.exp_avg_sq_format = config_.exp_avg_sq.format;
  memory::Block exp_avg(shard.ledger, memory::Purpose::exp_avg, bytes(shard.exp_avg_format));
  shard.exp_avg_sq =
      memory::Block(shard.ledger, memory::Purpose::exp_avg_sq, bytes(shard.exp_avg_sq_format));
  shard.exp_avg = std::move(exp_avg);
  shard.has_states = true;
}

void Optimizer::step(const std::vector<Shard*>& shards, otr_step_report& report) {
  for (size_t i = 0; i < shards.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (shards[i] == shards[j]) {
        fail(OTR_E_ARGUMENT, "shards {} and {} are the same shard: give each once", j, i);
      }
    }
    check(*shards[i], i);
  }
  for (Shard* shard : shards) allocate(*shard);
  ++steps_;
  kernels::NormSum total;
  report.nonfinite_param = report.nonfinite_rank = -1;
  for (size_t i = 0; i < shards.size(); ++i) {
    const tensor::View& grads = shards[i]->grads;
    const kernels::NormSum sum = host_.norm(grads.data, grads.format, grads.count, 0);
    if (sum.nonfinite > 0 && report.nonfinite_param < 0) {
      report.nonfinite_param = static_cast<int64_t>(i);
      report.nonfinite_rank = 0;
    }
    kernels::merge(total, sum);
  }
  report.nonfinite_count = total.nonfinite;
  report.grad_norm = total.nonfinite > 0 ? HUGE_VAL : std::sqrt(kernels::value_of(total));
  report.loss_scale = 1;
  report.lr = config_.lr;
  report.clip_coefficient = 1;
  if (total.nonfinite > 0) {
    ++skipped_;
    report.outcome = OTR_STEP_SKIPPED;
    report.reason = OTR_SKIP_NONFINITE;
  } else {
    report.clip_coefficient = clip_coefficient(report.grad_norm, config_.gradient_clipping);
    for (Shard* shard : shards) {
      const kernels::UpdateCount count = update(*shard, report.clip_coefficient);
      report.updates += count.updates;
      report.vanished += count.vanished;
    }
    ++applied_;
    report.outcome = OTR_STEP_APPLIED;
  }
  report.micro_steps = steps_;
  report.applied_steps = applied_;
  report.skipped_steps = skipped_;
}

kernels::UpdateCount Optimizer::update(Shard& shard, double gradient_factor) {
  kernels::Adam a;
  a.grad_format = shard.grads.format;
  a.grad = shard.grads.data;
  a.weight_format = shard.weights.format;
  a.weight = shard.weights.data;
  a.exp_avg_format = shard.exp_avg_format;
  a.exp_avg = shard.exp_avg.data();
  a.exp_avg_sq_format = shard.exp_avg_sq_format;
  a.exp_avg_sq = shard.exp_avg_sq.data();
  a.weight_rounding = config_.master.rounding;
  a.exp_avg_rounding = config_.exp_avg.rounding;
  a.exp_avg_sq_rounding = config_.exp_avg_sq.rounding;
  if (shard.published) {
    a.published_format = shard.published->format;
    a.published = shard.published->data;
  }
  a.count = shard.weights.count;
  a.scalars = adam_scalars(config_, shard.updates + 1, gradient_factor);
  a.random = random_stream(config_.seed, shard.name);
  a.random.first_element = static_cast<uint64_t>(shard.first_element);
  a.random.step = static_cast<uint64_t>(shard.updates);
  const kernels::UpdateCount count = host_.adam({&a, 1});
  ++shard.updates;
  return count;
}

}  // namespace outrigger::optimizer
