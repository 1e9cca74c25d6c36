// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/reference.h"

#include <algorithm>
#include <cmath>

namespace outrigger::test {
namespace {

using Vector = std::vector<double>;

double length(const Vector& values) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  return std::sqrt(squares);
}

// Jordan et al. 2024: five steps of Newton-Schulz towards the nearest orthogonal matrix.
Vector newton_schulz(const Vector& matrix, size_t rows, size_t columns) {
  const bool tall = rows > columns;
  const size_t m = tall ? columns : rows, n = tall ? rows : columns;
  const auto at = [&](size_t i, size_t j) { return tall ? j * m + i : i * n + j; };
  Vector x = matrix;
  const double norm = length(matrix) + 1e-7;
  for (double& value : x) value /= norm;
  for (int step = 0; step < 5; ++step) {
    Vector a(m * m), p(m * m), next(x.size());
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < m; ++j) {
        for (size_t k = 0; k < n; ++k) a[i * m + j] += x[at(i, k)] * x[at(j, k)];
      }
    }
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < m; ++j) {
        double square = 0;
        for (size_t k = 0; k < m; ++k) square += a[i * m + k] * a[k * m + j];
        p[i * m + j] = -4.7750 * a[i * m + j] + 2.0315 * square;
      }
    }
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        next[at(i, j)] = 3.4445 * x[at(i, j)];
        for (size_t k = 0; k < m; ++k) next[at(i, j)] += p[i * m + k] * x[at(k, j)];
      }
    }
    x = next;
  }
  return x;
}

// One parameter and its states.
struct Trainee {
  Vector w, m, v;
  Vector moved, moved_m;  // as w and m, of sizes alone
  int steps = 0;
};

struct Hyper {
  double lr, decay;
};

// Loshchilov & Hutter 2019.
void adamw(Trainee& p, const Vector& grad, const Hyper& h, double beta2, double eps) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i];
    p.m[i] = 0.9 * p.m[i] + 0.1 * g;
    p.v[i] = beta2 * p.v[i] + (1 - beta2) * g * g;
    const double mean = p.m[i] / (1 - std::pow(0.9, p.steps));
    const double variance = p.v[i] / (1 - std::pow(beta2, p.steps));
    p.w[i] -= h.lr * h.decay * p.w[i];
    p.w[i] -= h.lr * mean / (std::sqrt(variance) + eps);
  }
}

// Duchi, Hazan & Singer 2011; L2 decay as in PyTorch.
void adagrad(Trainee& p, const Vector& grad, const Hyper& h) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i] + h.decay * p.w[i];
    p.v[i] += g * g;
    p.w[i] -= h.lr * g / (std::sqrt(p.v[i]) + 1e-10);
  }
}

// Chen et al. 2023, algorithm 2.
void lion(Trainee& p, const Vector& grad, const Hyper& h) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const double c = 0.9 * p.m[i] + 0.1 * grad[i];
    p.w[i] -= h.lr * ((c > 0 ? 1 : c < 0 ? -1 : 0) + h.decay * p.w[i]);
    p.m[i] = 0.99 * p.m[i] + 0.01 * grad[i];
  }
}

// PyTorch's SGD with Nesterov's momentum, or without any. sizes: of the gradient's summands.
void sgd(Trainee& p, const Vector& grad, const Vector& sizes, const Hyper& h, double momentum) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i] + h.decay * p.w[i];
    const double size = sizes[i] + h.decay * std::abs(p.w[i]);
    p.m[i] = momentum * p.m[i] + g;
    p.w[i] -= h.lr * (g + momentum * p.m[i]);
    p.moved_m[i] = momentum * p.moved_m[i] + size;
    p.moved[i] += h.lr * (size + momentum * p.moved_m[i]);
  }
}

// You et al. 2020, algorithm 2; DeepSpeed's bounds of the trust ratio.
void lamb(Trainee& p, const Vector& grad, const Hyper& h) {
  Vector direction(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i];
    p.m[i] = 0.9 * p.m[i] + 0.1 * g;
    p.v[i] = 0.999 * p.v[i] + 0.001 * g * g;
    const double variance = p.v[i] / (1 - std::pow(0.999, p.steps));
    direction[i] =
        p.m[i] / (1 - std::pow(0.9, p.steps)) / (std::sqrt(variance) + 1e-8) + h.decay * p.w[i];
  }
  const double weights = length(p.w), directions = length(direction);
  const double trust =
      weights > 0 && directions > 0 ? std::clamp(weights / directions, 0.01, 1.5) : 1;
  for (size_t i = 0; i < grad.size(); ++i) p.w[i] -= h.lr * trust * direction[i];
}

// Jordan et al. 2024; the momentum is an average, as in DeepSpeed and PyTorch.
void muon(Trainee& p, const Vector& grad, const Hyper& h, size_t rows, size_t columns) {
  Vector direction(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    p.m[i] = 0.95 * p.m[i] + 0.05 * grad[i];
    direction[i] = 0.05 * grad[i] + 0.95 * p.m[i];
  }
  direction = newton_schulz(direction, rows, columns);
  const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
  for (size_t i = 0; i < grad.size(); ++i) {
    p.w[i] -= h.lr * h.decay * p.w[i];
    p.w[i] -= h.lr * std::sqrt(std::max(1.0, ratio)) * direction[i];
  }
}

void update(const Case& c, const ModelParameter& q, Trainee& p, const Vector& grad,
            const Vector& sizes) {
  const Hyper h{c.lr, kDecay};
  ++p.steps;
  if (c.rule == "AdamW") adamw(p, grad, h, 0.999, 1e-8);
  if (c.rule == "Adagrad") adagrad(p, grad, h);
  if (c.rule == "Lion") lion(p, grad, h);
  if (c.rule == "SGD") sgd(p, grad, sizes, h, 0);
  if (c.rule == "Nesterov") sgd(p, grad, sizes, h, 0.9);
  if (c.rule == "Lamb") lamb(p, grad, h);
  if (c.rule != "Muon") return;
  if (is_matrix(c, q)) {
    muon(p, grad, h, static_cast<size_t>(q.shape[0]), static_cast<size_t>(q.shape[1]));
  } else {
    adamw(p, grad, h, 0.95, 1e-10);
  }
}

}  // namespace

Reference train_in_double(const Case& c) {
  const auto& parameters = model_parameters();
  std::vector<Trainee> trainees;
  for (const ModelParameter& q : parameters) {
    const Vector zeros(q.initial.size());
    trainees.push_back({Vector(q.initial.begin(), q.initial.end()), zeros, zeros, zeros, zeros});
  }
  for (int32_t window = 0; window < kWindows; ++window) {
    std::vector<Vector> grads(parameters.size()), sizes(parameters.size());
    std::vector<bool> present(parameters.size());
    double squares = 0;
    for (size_t id = 0; id < parameters.size(); ++id) {
      if (parameters[id].alias_of >= 0 || !parameters[id].trainable) continue;
      grads[id] = sizes[id] = Vector(parameters[id].initial.size());
      for (const auto& step : collect(c, static_cast<int64_t>(id), window)) {
        for (const auto& rank : step) {
          for (const auto& g : rank) {
            present[id] = true;
            for (size_t i = 0; i < g.size(); ++i) {
              const double mean = static_cast<double>(g[i]) / c.world / loss_scale(c, window);
              grads[id][i] += mean;
              sizes[id][i] += std::abs(mean);
            }
          }
        }
      }
      squares += std::pow(length(grads[id]), 2);
    }
    const double norm = std::sqrt(squares);
    const double factor = c.clip > 0 && norm > c.clip ? c.clip / (norm + 1e-6) : 1.0;
    for (size_t id = 0; id < parameters.size(); ++id) {
      if (!present[id]) continue;
      for (double& g : grads[id]) g *= factor;
      for (double& g : sizes[id]) g *= factor;
      update(c, parameters[id], trainees[id], grads[id], sizes[id]);
    }
  }
  Reference result;
  for (Trainee& p : trainees) {
    result.weights.push_back(std::move(p.w));
    result.movement.push_back(std::move(p.moved));
  }
  return result;
}

}  // namespace outrigger::test
