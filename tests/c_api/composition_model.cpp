// SPDX-License-Identifier: Apache-2.0
#include "composition_model.h"

#include <cmath>

namespace otr_test {
namespace {

constexpr auto kSide = static_cast<size_t>(kWidth);

Values applied(const Layer& layer, const Values& in) {
  Values out(in.size());
  for (size_t s = 0; s < in.size(); s += kSide) {
    for (size_t i = 0; i < kSide; ++i) {
      double z = layer.b[i];
      for (size_t j = 0; j < kSide; ++j) z += layer.w[i * kSide + j] * in[s + j];
      out[s + i] = std::tanh(z);
    }
  }
  return out;
}

}  // namespace

Trace forward(const Layer& layer, const Values& in) {
  Trace trace{{in}, applied(layer, in)};
  if (layer.twice) {
    trace.inputs.push_back(trace.out);
    trace.out = applied(layer, trace.out);
  }
  return trace;
}

Pulled pull(const Layer& layer, const Trace& trace, Values out_grad) {
  Pulled found{{}, {}, Values(kSide, 0)};
  const Values* out = &trace.out;
  for (size_t n = trace.inputs.size(); n-- > 0;) {
    const Values& in = trace.inputs[n];
    Values dw(layer.w.size(), 0), din(in.size(), 0);
    for (size_t s = 0; s < in.size(); s += kSide) {
      for (size_t i = 0; i < kSide; ++i) {
        const double y = (*out)[s + i], dz = out_grad[s + i] * (1 - y * y);
        found.b[i] += dz;
        for (size_t j = 0; j < kSide; ++j) {
          dw[i * kSide + j] += dz * in[s + j];
          din[s + j] += dz * layer.w[i * kSide + j];
        }
      }
    }
    found.w.push_back(std::move(dw));
    out_grad = std::move(din);
    out = &in;
  }
  found.in = std::move(out_grad);
  return found;
}

}  // namespace otr_test
