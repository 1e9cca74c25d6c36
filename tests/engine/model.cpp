// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/optimizer/adam.h"
#include "core/optimizer/random_key.h"
#include "kernels/kernels.h"

namespace outrigger::test {
namespace {

using kernels::Format;
using kernels::Rounding;

constexpr double kLr = 0.01, kDecay = 0.1;
constexpr uint64_t kSeed = 7;

struct Precision {
  const char* name;
  Format compute, master, exp_avg, exp_avg_sq, accumulator;
  Rounding rounding;
  const char* json;  // members of the configuration
};
constexpr Format F32 = Format::float32;
constexpr Format B16 = Format::bfloat16;
const std::vector<Precision> kPrecisions{
    {"float32", F32, F32, F32, F32, F32, Rounding::nearest, ""},
    {"bf16, float32 master", B16, F32, F32, F32, B16, Rounding::nearest, R"("bf16": {"enabled": true},)"},
    {"bf16, float32 master, float32 accumulator", B16, F32, F32, F32, F32, Rounding::nearest,
     R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},)"},
    {"bf16 master and states", B16, B16, B16, B16, B16, Rounding::nearest,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},)"},
    {"bf16 master, float32 states", B16, B16, F32, F32, B16, Rounding::nearest,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true},)"},
    {"bf16 stochastic", B16, B16, B16, B16, B16, Rounding::stochastic,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},)"},
};
const Precision& precision_of(const Case& c) {
  return *std::find_if(kPrecisions.begin(), kPrecisions.end(),
                       [&](const Precision& p) { return c.precision == p.name; });
}

uint32_t hash(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9E3779B97F4A7C15u ^ b * 0xC2B2AE3D27D4EB4Fu ^ c * 0x165667B19E3779F9u;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 32;
  return static_cast<uint32_t>(x);
}
float noise(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<float>(static_cast<int32_t>(hash(a, b, c))) * 0x1p-31F;
}

float rounded(float value, Format format) {
  uint16_t half = 0;
  if (format == Format::float32) return value;
  kernels::convert(&half, format, &value, Format::float32, 1);
  float back = 0;
  kernels::convert(&back, Format::float32, &half, format, 1);
  return back;
}

ModelParameter parameter(std::string name, std::vector<int64_t> shape, bool trainable = true,
                         int64_t alias_of = -1) {
  static uint64_t serial = 1;
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  ModelParameter p{std::move(name), std::move(shape), count, trainable, alias_of, {}};
  for (int64_t i = 0; i < count; ++i) p.initial.push_back(noise(serial, 99, static_cast<uint64_t>(i)));
  ++serial;
  return p;
}

}  // namespace

std::vector<std::string> precisions() {
  std::vector<std::string> names;
  for (const Precision& p : kPrecisions) names.emplace_back(p.name);
  return names;
}

bool legal(const Case& c) {
  const Precision& p = precision_of(c);
  if (c.stage == 0 && p.master != Format::float32) return false;
  // DeepSpeed's rule: at stage 0 the accumulator has the model's dtype.
  return c.stage != 0 || p.accumulator == p.compute;
}

std::string config_of(const Case& c) {
  const Precision& p = precision_of(c);
  const std::string states =
      p.rounding == Rounding::stochastic
          ? R"("states": {"master": {"rounding": "stochastic"}, "exp_avg": {"rounding": "stochastic"},
               "exp_avg_sq": {"rounding": "stochastic"}},)"
          : "";
  return fmt::format(
      R"({{{} "gradient_clipping": {}, "gradient_accumulation_steps": {}, "train_micro_batch_size_per_gpu": 1,
      "optimizer": {{"type": "AdamW", "params": {{"lr": {}, "weight_decay": {}}}}},
      "zero_optimization": {{"stage": {}, "reduce_bucket_size": {}}},
      "outrigger": {{{} "reduction_order": "{}", "bucket_buffers": {}, "workers": {}, "seed": {},
                     "unused_parameters": "{}"}}}})",
      p.json, c.clip, c.accumulation, kLr, kDecay, c.stage, c.bucket, states, c.order, c.buffers, c.workers,
      kSeed, c.unused);
}

std::string text_of(const Case& c) {
  return fmt::format("{} world {} stage {} {} {} accumulation {} clip {} bucket {} buffers {} workers {} unused {}"
                     "{}", name_of(c.provider), c.world, c.stage, c.precision, c.order, c.accumulation, c.clip,
                     c.bucket, c.buffers, c.workers, c.unused, c.scramble ? " scrambled" : "");
}

const std::vector<ModelParameter>& model_parameters() {
  static const std::vector<ModelParameter> kParameters{
      parameter("matrix", {7, 131}),         // 0: over several leaves, not divisible
      parameter("scalar", {}),               // 1: smaller than any world
      parameter("empty", {0, 5}),            // 2
      parameter("leaf", {256}),              // 3: one leaf exactly
      parameter("frozen", {17}, false),      // 4
      parameter("tied", {33, 9}),            // 5: shared with 8
      parameter("missing on some", {300}),   // 6
      parameter("unused in window 2", {5}),  // 7
      parameter("tied again", {33, 9}, true, 5),  // 8
      parameter("late", {1000}),             // 9: one contribution more than declared
      parameter("vector", {3}),              // 10
  };
  return kParameters;
}

std::vector<Contribution> contributions(int32_t rank, int32_t window, int32_t micro_step) {
  std::vector<Contribution> all;
  const auto give = [&](int64_t id, uint64_t salt) {
    const auto& p = model_parameters()[static_cast<size_t>(id)];
    Contribution c{id, {}};
    const uint64_t who = static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(window) * 10 +
                         static_cast<uint64_t>(micro_step);
    // Magnitudes over many binades, so that orders of addition show.
    for (int64_t i = 0; i < p.count; ++i) {
      const auto e = static_cast<uint64_t>(i);
      const int exponent = static_cast<int>(hash(who, e, salt) % 12) - 6;
      c.values.push_back(std::ldexp(noise(who, static_cast<uint64_t>(id) + 50 * salt, e), exponent));
    }
    all.push_back(std::move(c));
  };
  give(10, 1);
  give(9, 1);
  give(8, 1);
  if (window != 2) give(7, 1);
  if ((rank + micro_step) % 2 == 0) give(6, 1);
  give(5, 2);
  give(3, 1);
  if (rank == 0) give(9, 3);  // late
  give(2, 1);
  give(1, 1);
  give(0, 1);
  return all;
}

namespace {

otr_tensor tensor_of(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  otr_tensor t;
  NEED(otr_tensor_init(const_cast<float*>(values.data()), "float32", static_cast<int32_t>(shape.size()),
                       const_cast<int64_t*>(shape.data()), &t));
  return t;
}

struct Owner {
  otr_engine* engine = nullptr;
  ~Owner() { otr_engine_destroy(engine); }
};

void declare(otr_engine* engine, int32_t rank) {
  for (const ModelParameter& p : model_parameters()) {
    otr_param_options options;
    NEED(otr_param_options_init(&options, sizeof options));
    options.trainable = p.trainable ? 1 : 0;
    options.alias_of = p.alias_of;
    std::vector<float> values = p.initial;
    if (rank != 0) std::fill(values.begin(), values.end(), 1000.0F);  // rank 0's win
    const otr_tensor initial = tensor_of(p.shape, values);
    int64_t id = -1;
    NEED(otr_engine_add_parameter(engine, p.name.c_str(), &initial, &options, &id));
  }
  NEED(otr_engine_commit(engine));
}

void one_pass(otr_engine* engine, const Case& c, int32_t rank, int32_t window, int32_t micro_step) {
  otr_pass* pass = nullptr;
  NEED(otr_pass_begin(engine, nullptr, 0, nullptr, &pass));
  std::vector<Contribution> all = contributions(rank, window, micro_step);
  if (c.scramble) {
    // Contributions to one parameter keep their order: that is what bits depend on.
    std::stable_sort(all.begin(), all.end(), [&](const Contribution& a, const Contribution& b) {
      const auto salt = static_cast<uint64_t>(rank * 7 + window);
      const auto key = [&](int64_t id) { return hash(static_cast<uint64_t>(id == 8 ? 5 : id), salt, 3); };
      return key(a.id) < key(b.id);
    });
  }
  for (const Contribution& contribution : all) {
    const auto& p = model_parameters()[static_cast<size_t>(contribution.id)];
    otr_tensor grad = tensor_of(p.shape, contribution.values);
    if (contribution.id % 2 == 1 && p.count > 0) {  // half of them through slots
      otr_tensor slot;
      NEED(otr_pass_get_slot(pass, contribution.id, &slot));
      const Format format = slot.dtype.code == OTR_DTYPE_BFLOAT ? Format::bfloat16 : Format::float32;
      kernels::convert(slot.data, format, contribution.values.data(), Format::float32, p.count);
      grad = slot;
    }
    NEED(otr_pass_add_grad(pass, contribution.id, &grad, nullptr));
  }
  NEED(otr_pass_end(pass));
  otr_pass_destroy(pass);
}

std::vector<float> read(otr_engine* engine, int64_t id, int32_t value) {
  const auto& p = model_parameters()[static_cast<size_t>(id)];
  std::vector<float> values(static_cast<size_t>(p.count));
  const otr_tensor out = tensor_of(p.shape, values);
  NEED(otr_engine_parameter_read(engine, id, value, &out));
  return values;
}

}  // namespace

Trained train(const Case& c, int32_t rank, otr_comm* comm) {
  Owner owner;
  NEED(otr_engine_create(comm, config_of(c).c_str(), &owner.engine));
  declare(owner.engine, rank);
  Trained trained;
  for (int32_t window = 0; window < kWindows; ++window) {
    otr_step_report report{};
    report.struct_size = sizeof report;
    for (int32_t micro_step = 0; micro_step < c.accumulation; ++micro_step) {
      one_pass(owner.engine, c, rank, window, micro_step);
      NEED(otr_engine_step(owner.engine, &report));
    }
    if (report.outcome != OTR_STEP_APPLIED) throw std::runtime_error("a step was not applied");
    trained.norms.push_back(report.grad_norm);
    trained.clips.push_back(report.clip_coefficient);
    trained.updates.push_back(report.updates);
    trained.vanished.push_back(report.vanished);
  }
  for (size_t id = 0; id < model_parameters().size(); ++id) {
    Trained::Values v;
    const auto i = static_cast<int64_t>(id);
    v.published = read(owner.engine, i, OTR_VALUE_PUBLISHED);
    if (model_parameters()[id].trainable) {
      v.master = read(owner.engine, i, OTR_VALUE_MASTER);
      v.exp_avg = read(owner.engine, i, OTR_VALUE_EXP_AVG);
      v.exp_avg_sq = read(owner.engine, i, OTR_VALUE_EXP_AVG_SQ);
    }
    trained.parameters.push_back(std::move(v));
  }
  NEED(otr_engine_finalize(owner.engine));
  return trained;
}

Bytes Trained::bytes() const {
  Bytes bytes;
  const auto put = [&](const auto& values) {
    const auto* begin = reinterpret_cast<const unsigned char*>(values.data());
    bytes.insert(bytes.end(), begin, begin + values.size() * sizeof(values[0]));
  };
  for (const auto& list : {norms, clips}) put(list);
  for (const auto& list : {updates, vanished}) put(list);
  for (const Values& v : parameters) {
    for (const auto* list : {&v.published, &v.master, &v.exp_avg, &v.exp_avg_sq}) put(*list);
  }
  return bytes;
}

namespace {

// A parameter's sum over ranks and passes, by the contract's formulas.
class Sum {
 public:
  Sum(const Case& c, size_t count) : case_(c), p_(precision_of(c)), acc_(count, 0.0F), count_(count) {}

  void window(const std::vector<std::vector<std::vector<std::vector<float>>>>& given, int32_t declared) {
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
    for (size_t i = 0; i < count_; ++i) acc[i] = rounded(first ? s[i] : acc[i] + s[i], p_.accumulator);
    first = false;
  }
  [[nodiscard]] std::vector<float> add_up(const std::vector<std::vector<float>>& list, int32_t from,
                                          int32_t to) const {
    std::vector<float> sum(count_, 0.0F);
    bool first = true;
    for (int32_t k = from; k < std::min<int32_t>(to, static_cast<int32_t>(list.size())); ++k) {
      const std::vector<float> g = rounded_all(list[static_cast<size_t>(k)]);
      for (size_t i = 0; i < count_; ++i) sum[i] = first ? g[i] : rounded(sum[i] + g[i], p_.compute);
      first = false;
    }
    return sum;
  }
  [[nodiscard]] std::vector<float> over_ranks(const std::vector<std::vector<float>>& local) const {
    std::vector<float> s = local[0];
    for (size_t r = 1; r < local.size(); ++r) {
      for (size_t i = 0; i < count_; ++i) s[i] += local[r][i];
    }
    return s;
  }

  const Case& case_;
  const Precision& p_;
  std::vector<float> acc_;
  size_t count_;
};

// given[micro step][rank] = contributions to this root
std::vector<std::vector<std::vector<std::vector<float>>>> collect(const Case& c, int64_t root, int32_t window) {
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

bool has_any(const std::vector<std::vector<std::vector<std::vector<float>>>>& given) {
  return std::any_of(given.begin(), given.end(), [](const auto& step) {
    return std::any_of(step.begin(), step.end(), [](const auto& rank) { return !rank.empty(); });
  });
}

// Values in a storage format, as bytes.
Bytes stored(const std::vector<float>& values, Format format) {
  Bytes bytes(values.size() * kernels::size_of(format));
  kernels::convert(bytes.data(), format, values.data(), Format::float32, static_cast<int64_t>(values.size()));
  return bytes;
}
std::vector<float> loaded(const Bytes& bytes, Format format) {
  std::vector<float> values(bytes.size() / kernels::size_of(format));
  kernels::convert(values.data(), Format::float32, bytes.data(), format, static_cast<int64_t>(values.size()));
  return values;
}

config::OptimizerConfig hyperparameters() {
  config::OptimizerConfig config;
  config.lr = kLr;
  config.weight_decay = kDecay;
  return config;
}

}  // namespace

Trained simulate(const Case& c) {
  const Precision& p = precision_of(c);
  const auto& parameters = model_parameters();
  struct State {
    Bytes master, published, exp_avg, exp_avg_sq;
    int64_t updates = 0;
  };
  std::vector<State> states(parameters.size());
  for (size_t id = 0; id < parameters.size(); ++id) {
    State& s = states[id];
    s.master = stored(parameters[id].initial, p.master);
    s.published = stored(parameters[id].initial, p.compute);
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
    const double value = std::sqrt(kernels::value_of(norm)) * (1.0 / c.world);
    const double clip = optimizer::clip_coefficient(value, c.clip);
    kernels::UpdateCount counts;
    for (size_t id = 0; id < parameters.size(); ++id) {
      const ModelParameter& q = parameters[id];
      State& s = states[id];
      if (q.alias_of >= 0 || !q.trainable || (c.unused == "skip" && !present[id])) continue;
      kernels::Adam a;
      a.grad = grads[id].data();
      a.grad_format = p.accumulator;
      a.weight = s.master.data();
      a.weight_format = p.master;
      a.exp_avg = s.exp_avg.data();
      a.exp_avg_sq = s.exp_avg_sq.data();
      a.exp_avg_format = p.exp_avg;
      a.exp_avg_sq_format = p.exp_avg_sq;
      a.weight_rounding = a.exp_avg_rounding = a.exp_avg_sq_rounding = p.rounding;
      a.count = q.count;
      a.scalars = optimizer::adam_scalars(hyperparameters(), ++s.updates, 1.0 / c.world * clip);
      a.random = optimizer::random_stream(kSeed, q.name);
      a.random.step = static_cast<uint64_t>(window);
      const kernels::UpdateCount n = kernels::adam(a);
      counts.updates += n.updates;
      counts.vanished += n.vanished;
      s.published = stored(loaded(s.master, p.master), p.compute);
    }
    trained.norms.push_back(value);
    trained.clips.push_back(clip);
    trained.updates.push_back(counts.updates);
    trained.vanished.push_back(counts.vanished);
  }
  for (size_t id = 0; id < parameters.size(); ++id) {
    const ModelParameter& q = parameters[id];
    const State& s = states[q.alias_of >= 0 ? static_cast<size_t>(q.alias_of) : id];
    Trained::Values v;
    v.published = loaded(s.published, p.compute);
    if (q.trainable) {
      v.master = loaded(s.master, p.master);
      v.exp_avg = loaded(s.exp_avg, p.exp_avg);
      v.exp_avg_sq = loaded(s.exp_avg_sq, p.exp_avg_sq);
    }
    trained.parameters.push_back(std::move(v));
  }
  return trained;
}

std::vector<std::vector<double>> train_in_double(const Case& c) {
  const auto& parameters = model_parameters();
  std::vector<std::vector<double>> weights, m, v;
  for (const ModelParameter& q : parameters) {
    weights.emplace_back(q.initial.begin(), q.initial.end());
    m.emplace_back(q.initial.size(), 0.0);
    v.emplace_back(q.initial.size(), 0.0);
  }
  std::vector<int> steps(parameters.size(), 0);
  for (int32_t window = 0; window < kWindows; ++window) {
    std::vector<std::vector<double>> grads(parameters.size());
    std::vector<bool> present(parameters.size());
    double squares = 0;
    for (size_t id = 0; id < parameters.size(); ++id) {
      if (parameters[id].alias_of >= 0 || !parameters[id].trainable) continue;
      grads[id].assign(parameters[id].initial.size(), 0.0);
      for (const auto& step : collect(c, static_cast<int64_t>(id), window)) {
        for (const auto& rank : step) {
          for (const auto& g : rank) {
            present[id] = true;
            for (size_t i = 0; i < g.size(); ++i) grads[id][i] += static_cast<double>(g[i]) / c.world;
          }
        }
      }
      for (const double g : grads[id]) squares += g * g;
    }
    const double norm = std::sqrt(squares);
    const double factor = c.clip > 0 && norm > c.clip ? c.clip / (norm + 1e-6) : 1.0;
    for (size_t id = 0; id < parameters.size(); ++id) {
      if (!present[id]) continue;
      const int t = ++steps[id];
      for (size_t i = 0; i < grads[id].size(); ++i) {
        const double g = grads[id][i] * factor;
        m[id][i] = 0.9 * m[id][i] + 0.1 * g;
        v[id][i] = 0.999 * v[id][i] + 0.001 * g * g;
        const double mean = m[id][i] / (1 - std::pow(0.9, t));
        const double variance = v[id][i] / (1 - std::pow(0.999, t));
        weights[id][i] -= kLr * kDecay * weights[id][i];
        weights[id][i] -= kLr * mean / (std::sqrt(variance) + 1e-8);
      }
    }
  }
  return weights;
}

std::string first_difference(const Bytes& got, const Bytes& expected) {
  if (got.size() != expected.size()) return fmt::format("{} bytes instead of {}", got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected[i]) return fmt::format("byte {} of {}", i, got.size());
  }
  return "";
}

}  // namespace outrigger::test
