// SPDX-License-Identifier: Apache-2.0
// The same training without an engine, in the contract's formulas, bit by bit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "core/optimizer/random_key.h"
#include "core/optimizer/rule.h"
#include "kernels/kernels.h"
#include "tests/engine/model.h"
#include "tests/engine/orthogonal.h"
#include "tests/engine/precision.h"

namespace outrigger::test {

using kernels::Format;
using kernels::Rounding;

std::vector<std::vector<std::vector<std::vector<float>>>> collect(const Case& c, int64_t root,
                                                                  int32_t window) {
  std::vector<std::vector<std::vector<std::vector<float>>>> given;
  for (int32_t step = 0; step < c.accumulation; ++step) {
    auto& ranks = given.emplace_back();
    for (int32_t r = 0; r < c.world; ++r) {
      auto& list = ranks.emplace_back();
      for (const Contribution& g : contributions(r, window, step)) {
        const int64_t alias = model_parameters()[static_cast<size_t>(g.id)].alias_of;
        if ((alias >= 0 ? alias : g.id) == root) list.push_back(g.values);
      }
    }
  }
  return given;
}

namespace {

float rounded(float value, Format format) {
  uint16_t half = 0;
  if (format == Format::float32) return value;
  kernels::convert(&half, format, &value, Format::float32, 1);
  float back = 0;
  kernels::convert(&back, Format::float32, &half, format, 1);
  return back;
}

// Values in a storage format, as bytes.
Bytes stored(const std::vector<float>& values, Format format) {
  const auto count = static_cast<int64_t>(values.size());
  Bytes bytes(static_cast<size_t>(kernels::bytes_of(count, format)));
  if (kernels::is_block(format)) {
    kernels::pack(bytes.data(), kernels::scales_behind(bytes.data(), count, format), format,
                  values.data(), count, {});
    return bytes;
  }
  kernels::convert(bytes.data(), format, values.data(), Format::float32,
                   static_cast<int64_t>(values.size()));
  return bytes;
}
float* scales_of(Bytes& stored, Format format, int64_t count) {
  return kernels::scales_behind(stored.data(), count, format);
}
std::vector<float> loaded(Bytes& bytes, Format format, size_t count) {
  std::vector<float> values(count);
  if (kernels::is_block(format)) {
    const auto n = static_cast<int64_t>(count);
    kernels::unpack(values.data(), bytes.data(), scales_of(bytes, format, n), format, n);
    return values;
  }
  kernels::convert(values.data(), Format::float32, bytes.data(), format,
                   static_cast<int64_t>(values.size()));
  return values;
}

}  // namespace

std::vector<float> shown_of(const Case& c, bool trainable, std::vector<float> values) {
  const bool are_sent = c.stage == 3 && trainable && c.world > 1 && c.shard != 1;
  if (!c.in_integers || !are_sent) return values;
  constexpr size_t kLeaf = 256;  // elements that have one scale
  for (size_t first = 0; first < values.size(); first += kLeaf) {
    const std::span leaf = std::span(values).subspan(first, std::min(kLeaf, values.size() - first));
    float largest = 0;
    for (const float x : leaf) largest = std::max(largest, std::abs(x));
    const float scale = std::max(largest, 0x1p-100F) / 127;
    for (float& x : leaf)
      x = rounded(std::nearbyint(x * (1 / scale)) * scale, precision_of(c).compute);
  }
  return values;
}

namespace {

// A parameter's sum over ranks and passes, by the contract's formulas.
class Sum {
 public:
  Sum(const Case& c, size_t count)
      : case_(c), p_(precision_of(c)), acc_(count, 0.0F), count_(count) {}

  void window(const std::vector<std::vector<std::vector<std::vector<float>>>>& given,
              int32_t declared) {
    // given[micro step][rank] = contributions
    if (case_.order == "boundary") {
      std::vector<std::vector<float>> local;
      for (int32_t r = 0; r < case_.world; ++r) {
        std::vector<float> acc(count_, 0.0F);
        bool first = true;
        for (const auto& step : given) {
          for (const auto& g : step[static_cast<size_t>(r)]) accumulate(acc, rounded_all(g), first);
        }
        local.push_back(acc);
      }
      const std::vector<float> s = over_ranks(local);
      for (size_t i = 0; i < count_; ++i) acc_[i] = rounded(s[i], p_.accumulator);
      return;
    }
    bool first = true;
    for (const auto& step : given) {
      std::vector<std::vector<float>> sums, late;
      bool any_late = false;
      for (const auto& rank : step) {
        sums.push_back(add_up(rank, 0, declared));
        late.push_back(add_up(rank, declared, static_cast<int32_t>(rank.size())));
        any_late = any_late || static_cast<int32_t>(rank.size()) > declared;
      }
      accumulate(acc_, over_ranks(sums), first);
      if (any_late) accumulate(acc_, over_ranks(late), first);
    }
  }
  [[nodiscard]] const std::vector<float>& values() const { return acc_; }

 private:
  [[nodiscard]] std::vector<float> rounded_all(std::vector<float> g) const {
    for (float& x : g) x = rounded(x, p_.compute);
    return g;
  }
  void accumulate(std::vector<float>& acc, const std::vector<float>& s, bool& first) const {
    for (size_t i = 0; i < count_; ++i)
      acc[i] = rounded(first ? s[i] : acc[i] + s[i], p_.accumulator);
    first = false;
  }
  [[nodiscard]] std::vector<float> add_up(const std::vector<std::vector<float>>& list, int32_t from,
                                          int32_t to) const {
    std::vector<float> sum(count_, 0.0F);
    bool first = true;
    for (int32_t k = from; k < std::min<int32_t>(to, static_cast<int32_t>(list.size())); ++k) {
      const std::vector<float> g = rounded_all(list[static_cast<size_t>(k)]);
      for (size_t i = 0; i < count_; ++i)
        sum[i] = first ? g[i] : rounded(sum[i] + g[i], p_.compute);
      first = false;
    }
    return sum;
  }
  [[nodiscard]] std::vector<float> over_ranks(const std::vector<std::vector<float>>& local) const {
    const bool mesh = case_.shard > 0 && case_.shard < case_.world;
    const int32_t groups = mesh ? case_.world / case_.shard : std::max(1, case_.hosts);
    const std::vector<std::vector<float>> all =
        groups == 1 ? local : add_groups(local, local.size() / static_cast<size_t>(groups));
    return add_groups(sent(all), all.size())[0];
  }

  // What ranks, or groups of them, send each other.
  [[nodiscard]] std::vector<std::vector<float>> sent(std::vector<std::vector<float>> sums) const {
    if (!case_.quantised || case_.world == 1) return sums;
    for (std::vector<float>& sum : sums) {
      Bytes blocks = stored(sum, Format::block8);
      sum = loaded(blocks, Format::block8, count_);
    }
    return sums;
  }

  // The sum of every so many, one after another.
  [[nodiscard]] std::vector<std::vector<float>> add_groups(
      const std::vector<std::vector<float>>& from, size_t each) const {
    std::vector<std::vector<float>> sums;
    for (size_t r = 0; r < from.size(); ++r) {
      if (r % each == 0) {
        sums.push_back(from[r]);
        continue;
      }
      for (size_t i = 0; i < count_; ++i) sums.back()[i] += from[r][i];
    }
    return sums;
  }

  const Case& case_;
  const Precision& p_;
  std::vector<float> acc_;
  size_t count_;
};

bool has_any(const std::vector<std::vector<std::vector<std::vector<float>>>>& given) {
  return std::any_of(given.begin(), given.end(), [](const auto& step) {
    return std::any_of(step.begin(), step.end(), [](const auto& rank) { return !rank.empty(); });
  });
}

// The bfloat16 that a split master publishes, by the contract's formula: a tie goes away from zero.
Bytes published_half(const std::vector<float>& values) {
  Bytes published(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto high = static_cast<uint16_t>((std::bit_cast<uint32_t>(values[i]) + 0x8000) >> 16);
    std::memcpy(published.data() + 2 * i, &high, 2);
  }
  return published;
}

// The configuration's meaning, written down again.
config::OptimizerConfig hyperparameters(const Case& c) {
  config::OptimizerConfig config;
  const std::string type = rule_of(c).type;
  using kernels::Rule;
  config.rule = type == "Adagrad" ? Rule::adagrad
                : type == "Lion"  ? Rule::lion
                : type == "SGD"   ? Rule::sgd
                : type == "Lamb"  ? Rule::lamb
                : type == "Muon"  ? Rule::muon
                                  : Rule::adam;
  config.decoupled = type == "AdamW" || type == "Lion" || type == "Muon";
  if (type == "Adagrad") config.eps = 1e-10;
  if (type == "Lion") config.beta2 = 0.99;
  if (type == "Lamb") config.max_coeff = 1.5;
  if (type == "Muon") {
    config.momentum = 0.95;
    config.nesterov = true;
    config.beta2 = 0.95;
    config.eps = 1e-10;
  }
  if (c.rule == "Nesterov") {
    config.momentum = 0.9;
    config.nesterov = true;
  }
  config.lr = c.lr;
  config.weight_decay = kDecay;
  return config;
}

}  // namespace

Trained simulate(const Case& c) {
  const Precision& p = precision_of(c);
  const auto& parameters = model_parameters();
  // A split master is a float32 one here: they are to have the same bits.
  const bool split = p.master == Format::split;
  const Format master = split ? Format::float32 : p.master;
  struct State {
    Bytes master, published, exp_avg, exp_avg_sq;
    int64_t updates = 0;
  };
  std::vector<State> states(parameters.size());
  for (size_t id = 0; id < parameters.size(); ++id) {
    State& s = states[id];
    s.master = stored(parameters[id].initial, master);
    s.published = split && parameters[id].trainable ? published_half(parameters[id].initial)
                                                    : stored(parameters[id].initial, p.compute);
    s.exp_avg = stored(std::vector<float>(parameters[id].initial.size(), 0.0F), p.exp_avg);
    s.exp_avg_sq = stored(std::vector<float>(parameters[id].initial.size(), 0.0F), p.exp_avg_sq);
  }
  Trained trained;
  for (int32_t window = 0; window < kWindows; ++window) {
    kernels::NormSum norm;
    std::vector<Bytes> grads(parameters.size());
    std::vector<bool> present(parameters.size());
    for (size_t id = 0; id < parameters.size(); ++id) {
      if (parameters[id].alias_of >= 0 || !parameters[id].trainable) continue;
      const auto given = collect(c, static_cast<int64_t>(id), window);
      Sum sum(c, parameters[id].initial.size());
      sum.window(given, id == 5 ? 2 : 1);
      present[id] = has_any(given);
      grads[id] = stored(sum.values(), p.accumulator);
      kernels::sum_of_squares(norm, grads[id].data(), p.accumulator, parameters[id].count, 0);
    }
    const double mean = 1.0 / c.world / loss_scale(c, window);
    const double value = std::sqrt(kernels::value_of(norm)) * mean;
    const double clip = optimizer::clip_coefficient(value, c.clip);
    kernels::UpdateCount counts;
    for (size_t id = 0; id < parameters.size(); ++id) {
      const ModelParameter& q = parameters[id];
      State& s = states[id];
      if (q.alias_of >= 0 || !q.trainable || (c.unused == "skip" && !present[id])) continue;
      kernels::Update a;
      a.grad = grads[id].data();
      a.grad_format = p.accumulator;
      a.weight = s.master.data();
      a.weight_format = master;
      config::OptimizerConfig rule = hyperparameters(c);
      const bool matrix = is_matrix(c, q);
      if (c.rule == "Muon" && !matrix) rule.rule = kernels::Rule::adam;
      a.rule = rule.rule;
      if (rule_of(c).exp_avg) a.exp_avg = s.exp_avg.data();
      if (keeps_exp_avg_sq(c, q)) a.exp_avg_sq = s.exp_avg_sq.data();
      a.exp_avg_scales = scales_of(s.exp_avg, p.exp_avg, q.count);
      a.exp_avg_sq_scales = scales_of(s.exp_avg_sq, p.exp_avg_sq, q.count);
      a.exp_avg_format = p.exp_avg;
      a.exp_avg_sq_format = p.exp_avg_sq;
      a.weight_rounding = a.exp_avg_rounding = a.exp_avg_sq_rounding = p.rounding;
      a.count = q.count;
      a.scalars = optimizer::update_scalars(rule, ++s.updates, mean * clip);
      a.random = optimizer::random_stream(kSeed, q.name);
      a.random.step = static_cast<uint64_t>(window);
      if (rule.rule == kernels::Rule::lamb) {
        kernels::NormSum w, d;
        kernels::lamb_norms(a, w, d);
        const double ratio = std::sqrt(kernels::value_of(w)) / std::sqrt(kernels::value_of(d));
        const bool defined = kernels::value_of(w) > 0 && kernels::value_of(d) > 0;
        const double bounded = ratio < 0.01 ? 0.01 : ratio > 1.5 ? 1.5 : ratio;
        a.scalars.minus_step = static_cast<float>(-c.lr * (defined ? bounded : 1));
      }
      std::vector<float> direction(q.initial.size());
      if (matrix) {
        kernels::muon_direction(a, direction.data());
        direction = orthogonal(direction, q.shape[0], q.shape[1]);
        a.rule = kernels::Rule::sgd;
        a.exp_avg = nullptr;
        a.grad = direction.data();
        a.grad_format = Format::float32;
        a.scalars.gradient_factor = 1;
        const double ratio = static_cast<double>(q.shape[0]) / static_cast<double>(q.shape[1]);
        a.scalars.minus_step = static_cast<float>(-(c.lr * std::sqrt(ratio > 1 ? ratio : 1)));
      }
      const kernels::UpdateCount n = kernels::update(a);
      counts.updates += n.updates;
      counts.vanished += n.vanished;
      const std::vector<float> weights = loaded(s.master, master, q.initial.size());
      s.published = split ? published_half(weights) : stored(weights, p.compute);
    }
    trained.norms.push_back(value);
    trained.clips.push_back(clip);
    trained.updates.push_back(counts.updates);
    trained.vanished.push_back(counts.vanished);
  }
  for (size_t id = 0; id < parameters.size(); ++id) {
    const ModelParameter& q = parameters[id];
    State& s = states[q.alias_of >= 0 ? static_cast<size_t>(q.alias_of) : id];
    Trained::Values v;
    const size_t count = q.initial.size();
    v.published = loaded(s.published, p.compute, count);
    if (q.trainable) {
      v.master = loaded(s.master, master, count);
      if (rule_of(c).exp_avg) v.exp_avg = loaded(s.exp_avg, p.exp_avg, count);
      if (keeps_exp_avg_sq(c, q)) v.exp_avg_sq = loaded(s.exp_avg_sq, p.exp_avg_sq, count);
    }
    trained.parameters.push_back(std::move(v));
  }
  return trained;
}

}  // namespace outrigger::test
