// SPDX-License-Identifier: Apache-2.0
// Flat tensors with a shard over them, and Adam as published, in float64.
#pragma once

#include <cmath>
#include <cstring>

#include "support.h"

namespace otr_test {

// Kingma & Ba 2015, algorithm 1; decoupled decay: Loshchilov & Hutter 2019, algorithm 2.
struct AdamReference {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true, bias_correction = true;

  struct State {
    double w, m, v;
  };
  [[nodiscard]] State step(State s, double g, int t) const {
    if (!decoupled) g += weight_decay * s.w;
    s.m = beta1 * s.m + (1 - beta1) * g;
    s.v = beta2 * s.v + (1 - beta2) * g * g;
    const double m_hat = bias_correction ? s.m / (1 - std::pow(beta1, t)) : s.m;
    const double v_hat = bias_correction ? s.v / (1 - std::pow(beta2, t)) : s.v;
    if (decoupled) s.w -= lr * weight_decay * s.w;
    s.w -= lr * m_hat / (std::sqrt(v_hat) + eps);
    return s;
  }
};

inline Owned<otr_optimizer> make_optimizer(otr_context* context, const std::string& json) {
  otr_optimizer* optimizer = nullptr;
  EXPECT_OK(otr_optimizer_create(context, json.c_str(), &optimizer));
  return Owned<otr_optimizer>(optimizer);
}

// Weights, gradients and (optionally) a published copy with a shard over them.
class Flat {
 public:
  Flat(otr_context* context, const Values& weights, const Values& grads,
       const char* weight_dtype = "float32", const char* grad_dtype = "float32",
       const otr_shard_options* options = nullptr)
      : count_(static_cast<int64_t>(weights.size())),
        weights_({count_}, weights, weight_dtype),
        grads_({count_}, grads, grad_dtype) {
    EXPECT_OK(otr_shard_wrap(context, &weights_, &grads_, options, &handle_));
    owner_.reset(handle_);
  }
  [[nodiscard]] otr_shard* shard() const { return handle_; }
  [[nodiscard]] otr_shard* const* list() const { return &handle_; }
  [[nodiscard]] Values weights() const { return weights_.values(); }
  [[nodiscard]] Values grads() const { return grads_.values(); }
  void set_grads(const Values& values) {
    for (int64_t i = 0; i < count_; ++i) set_value(grads_.get(), i, values[static_cast<size_t>(i)]);
  }
  [[nodiscard]] Values state(int32_t value) const {
    const Tensor out = Tensor::filled({count_}, 0);
    EXPECT_OK(otr_shard_read(handle_, value, &out));
    return out.values();
  }
  void destroy() { owner_.reset(); }

 private:
  int64_t count_;
  Tensor weights_, grads_;
  otr_shard* handle_ = nullptr;
  Owned<otr_shard> owner_;
};

inline otr_step_report step(const Owned<otr_optimizer>& optimizer,
                            const std::vector<otr_shard*>& shards) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_optimizer_step(optimizer.get(), shards.data(), static_cast<int64_t>(shards.size()),
                               &report));
  return report;
}

// Gradients that no format holds exactly.
inline Values irrational(int64_t count, double seed, double size = 1) {
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = size * std::sin(seed + 0.7 * static_cast<double>(i));
  return values;
}

}  // namespace otr_test
