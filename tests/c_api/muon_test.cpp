// SPDX-License-Identifier: Apache-2.0
// Muon on shards and engines: which parameters are matrices, what becomes of the others, which
// states there are. (Bits over stages, ranks and formats: tests/engine/matrix_test.)
#include <chrono>
#include <numbers>

#include "flat.h"

namespace {

using namespace otr_test;

using Rows = std::vector<Values>;

Rows product(const Rows& a, const Rows& b) {
  Rows c(a.size(), Values(b[0].size(), 0));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[k].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

Rows transposed(const Rows& a) {
  Rows t(a[0].size(), Values(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

// Jordan et al. 2024, in float64.
Rows orthogonal(Rows x, int steps = 5) {
  double squares = 0;
  for (const Values& row : x) {
    for (const double value : row) squares += value * value;
  }
  for (Values& row : x) {
    for (double& value : row) value /= std::sqrt(squares) + 1e-7;
  }
  const bool tall = x.size() > x[0].size();
  if (tall) x = transposed(x);
  for (int step = 0; step < steps; ++step) {
    const Rows a = product(x, transposed(x)), square = product(a, a);
    Rows p = a;
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < a.size(); ++j) p[i][j] = -4.7750 * a[i][j] + 2.0315 * square[i][j];
    }
    const Rows px = product(p, x);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[i].size(); ++j) x[i][j] = 3.4445 * x[i][j] + px[i][j];
    }
  }
  return tall ? transposed(x) : x;
}

otr_shard_options rows_option(int64_t rows) {
  otr_shard_options options;
  EXPECT_OK(otr_shard_options_init(&options, sizeof options));
  options.rows = rows;
  return options;
}

void expect_published_steps(const char* params, int64_t rows, int64_t columns, bool nesterov,
                            double scale, int ns_steps = 5) {
  constexpr double kLr = 0.05, kMomentum = 0.9, kDecay = 0.1;
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(),
      std::string(
          R"({"type": "Muon", "params": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1)") +
          params + "}}");
  const int64_t count = rows * columns;
  const otr_shard_options options = rows_option(rows);
  Values w = irrational(count, 1), m(w.size(), 0);
  Flat flat(context.get(), w, irrational(count, 2), "float32", "float32", &options);
  for (int t = 1; t <= 6; ++t) {
    const Values g = irrational(count, 2 + t * t, 0.01);
    flat.set_grads(g);
    const auto report = step(optimizer, {flat.shard()});
    EXPECT_EQ(report.updates, count);
    Rows d(static_cast<size_t>(rows), Values(static_cast<size_t>(columns)));
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = kMomentum * m[i] + (1 - kMomentum) * g[i];
      d[i / static_cast<size_t>(columns)][i % static_cast<size_t>(columns)] =
          nesterov ? (1 - kMomentum) * g[i] + kMomentum * m[i] : m[i];
    }
    d = orthogonal(d, ns_steps);
    for (size_t i = 0; i < w.size(); ++i) {
      w[i] -= kLr * kDecay * w[i] +
              kLr * scale * d[i / static_cast<size_t>(columns)][i % static_cast<size_t>(columns)];
    }
  }
  const Values got = flat.weights();
  for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(got[i], w[i], 1e-4) << i;
}

TEST(Muon, FollowsThePublishedAlgorithm) {
  expect_published_steps("", 12, 31, true, 1);
  expect_published_steps("", 140, 24, true, std::sqrt(140.0 / 24));
  expect_published_steps(R"(, "nesterov": false)", 20, 20, false, 1);
  expect_published_steps(R"(, "adjust_lr_fn": "match_rms_adamw")", 9, 100, true, 2);
  expect_published_steps(R"(, "ns_steps": 2)", 100, 7, true, std::sqrt(100.0 / 7), 2);
}

TEST(Muon, AZeroGradientMovesNothing) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), R"({"type": "Muon"})");
  const otr_shard_options options = rows_option(4);
  Flat flat(context.get(), irrational(12, 1), Values(12, 0), "float32", "float32", &options);
  const Values before = flat.weights();
  step(optimizer, {flat.shard()});
  EXPECT_EQ(flat.weights(), before);
}

// The others: AdamW with its own rate, betas and eps, to the bit.
TEST(Muon, UpdatesWhatIsNoMatrixByAdamW) {
  const auto context = make_context();
  const auto muon = make_optimizer(
      context.get(),
      R"({"type": "Muon", "params": {"muon_lr": 1, "adam_lr": 0.01, "weight_decay": 0.1}})");
  const auto adam = make_optimizer(
      context.get(),
      R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1, "betas": [0.9, 0.95], "eps": 1e-10}})");
  Flat a(context.get(), irrational(300, 1), irrational(300, 2));
  Flat b(context.get(), irrational(300, 1), irrational(300, 2));
  for (int t = 0; t < 3; ++t) {
    step(muon, {a.shard()});
    step(adam, {b.shard()});
  }
  EXPECT_EQ(a.weights(), b.weights());
  EXPECT_EQ(a.state(OTR_VALUE_EXP_AVG_SQ), b.state(OTR_VALUE_EXP_AVG_SQ));
}

TEST(Muon, RatesOfBothHalves) {
  const auto context = make_context();
  const auto moved = [&](const std::string& params, const char* name = nullptr, double value = 0) {
    const auto optimizer =
        make_optimizer(context.get(), R"({"type": "Muon", "params": {)" + params + R"(}})");
    if (name != nullptr) {
      EXPECT_OK(otr_optimizer_set_value(optimizer.get(), name, value));
    }
    const otr_shard_options options = rows_option(1);  // of one row: the direction has norm ~1
    Flat matrix(context.get(), {0}, {1}, "float32", "float32", &options);
    Flat other(context.get(), {0}, {1});
    step(optimizer, {matrix.shard(), other.shard()});
    return std::pair(-matrix.weights()[0] / orthogonal({{1}})[0][0], -other.weights()[0]);
  };
  const auto expect = [](std::pair<double, double> got, double matrix, double other) {
    EXPECT_NEAR(got.first, matrix, 1e-5 * matrix);  // of the iteration in float32
    EXPECT_NEAR(got.second, other, 1e-6 * other);
  };
  expect(moved(""), 0.02, 3e-4);
  expect(moved(R"("lr": 0.5)"), 0.5, 0.5);
  expect(moved(R"("lr": 0.5, "adam_lr": 0.25)"), 0.5, 0.25);
  expect(moved(R"("lr": 0.5, "muon_lr": 0.25)"), 0.25, 0.5);
  expect(moved(R"("lr": 0.5)", "lr", 0.125), 0.125, 0.125);  // the others follow
  expect(moved(R"("lr": 0.5)", "adam_lr", 0.125), 0.5, 0.125);
  expect(moved(R"("lr": 0.5, "adam_lr": 0.25)", "lr", 0.125), 0.125, 0.25);
}

TEST(Muon, AMatrixHasOneMoment) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), R"({"type": "Muon"})");
  const otr_shard_options options = rows_option(10);
  Flat matrix(context.get(), irrational(300, 1), irrational(300, 2), "float32", "float32",
              &options);
  Flat other(context.get(), irrational(300, 1), irrational(300, 2));
  step(optimizer, {matrix.shard(), other.shard()});
  int64_t bytes = 0;
  EXPECT_OK(otr_shard_state_bytes(matrix.shard(), &bytes));
  EXPECT_EQ(bytes, 1200);
  EXPECT_OK(otr_shard_state_bytes(other.shard(), &bytes));
  EXPECT_EQ(bytes, 2400);
  const Tensor out = Tensor::filled({300}, 0);
  EXPECT_EQ(otr_shard_read(matrix.shard(), OTR_VALUE_EXP_AVG_SQ, &out), OTR_E_NOT_FOUND);
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_FAILS(
      OTR_E_STATE,
      otr_optimizer_step(make_optimizer(context.get(), "{}").get(), matrix.list(), 1, &report),
      "has exp_avg from an earlier step", "AdamW keeps exp_avg and exp_avg_sq");
}

TEST(Muon, RefusesPartsAndRowsThatDoNotDivide) {
  const auto context = make_context();
  const Tensor weights = Tensor::filled({300}, 1), grads = Tensor::filled({300}, 1);
  otr_shard* shard = nullptr;
  for (const int64_t rows : {7, -1, 301}) {
    const otr_shard_options options = rows_option(rows);
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_shard_wrap(context.get(), &weights, &grads, &options, &shard),
                 "rows = " + std::to_string(rows), "300");
  }
  otr_shard_options options = rows_option(10);
  options.first_element = 256;
  const Flat part(context.get(), irrational(300, 1), irrational(300, 2), "float32", "float32",
                  &options);
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_FAILS(OTR_E_STATE,
               otr_optimizer_step(make_optimizer(context.get(), R"({"type": "Muon"})").get(),
                                  part.list(), 1, &report),
               "begins at element 256", "whole matrices", "engine");
}

std::string config(const std::string& own = "", const std::string& params = "") {
  return R"({"optimizer": {"type": "Muon", "params": {"lr": 0.1)" + params +
         R"(}}, "zero_optimization": {"stage": 1}, "outrigger": {)" + own + "}}";
}

Values zeros(const Shape& shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return Values(count, 0);
}

// Of each parameter whether it has a second moment.
std::vector<bool> second_moments(const std::string& json) {
  Solo solo(json);
  const std::vector<std::pair<const char*, Shape>> model = {
      {"block.weight", {6, 50}}, {"conv", {6, 5, 2, 5}}, {"token_EMBEDding", {6, 50}},
      {"lm_head", {6, 50}},      {"bias", {300}},        {"scale", {}}};
  for (const auto& [name, shape] : model) solo.engine.add(name, shape, zeros(shape));
  solo.engine.commit();
  std::vector<bool> has;
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor out = Tensor::filled(model[i].second, 0);
    const auto id = static_cast<int64_t>(i);
    has.push_back(otr_engine_parameter_read(solo.engine.get(), id, OTR_VALUE_EXP_AVG_SQ, &out) ==
                  OTR_OK);
    EXPECT_EQ(otr_engine_parameter_read(solo.engine.get(), id, OTR_VALUE_EXP_AVG, &out), OTR_OK);
  }
  return has;
}

TEST(Muon, MatricesAreOfTwoDimensionsUnlessTheirNamesSayOtherwise) {
  EXPECT_EQ(second_moments(config()), (std::vector<bool>{false, false, true, true, true, true}));
  EXPECT_EQ(second_moments(config(R"("muon": {"adam_parameters": []})")),
            (std::vector<bool>{false, false, false, false, true, true}));
  EXPECT_EQ(second_moments(config(R"("muon": {"adam_parameters": ["CONV", "block"]})")),
            (std::vector<bool>{true, true, false, false, true, true}));
}

// A name that shares an embedding's storage makes it one.
// Longer than what goes over the ranks at a time.
TEST(Muon, ALongSecondMomentIsWrittenWhole) {
  constexpr int64_t kCount = 300'000;
  run_ranks(2, [](int32_t, otr_comm* comm) {
    Engine engine(comm, config());
    engine.add("w", {2, 2}, Values(4, 0));
    const int64_t id = engine.add("b", {kCount}, Values(kCount, 0));
    engine.commit();
    Values values(kCount);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
    const Tensor given({kCount}, values);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), id, OTR_VALUE_EXP_AVG_SQ, &given));
    EXPECT_EQ(engine.read(id, OTR_VALUE_EXP_AVG_SQ), values);
  });
}

TEST(Muon, AnAliasCountsToo) {
  Solo solo(config());
  solo.engine.add("wte", {6, 50}, Values(300, 0));
  otr_param_options tied = param_options();
  tied.alias_of = 0;
  solo.engine.add("lm_head", {6, 50}, Values(300, 0), &tied);
  solo.engine.commit();
  const Tensor out = Tensor::filled({6, 50}, 0);
  EXPECT_OK(otr_engine_parameter_read(solo.engine.get(), 0, OTR_VALUE_EXP_AVG_SQ, &out));
}

TEST(Muon, AnEnginesMatricesAreThoseOfShards) {
  const Values start = irrational(300, 1), grad = irrational(300, 2);
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(), R"({"type": "Muon", "params": {"lr": 0.1}, "gradient_clipping": 1})");
  const otr_shard_options options = rows_option(12);
  Flat flat(context.get(), start, grad, "float32", "float32", &options);
  Solo solo(config());
  solo.engine.add("w", {12, 5, 5}, start);
  solo.engine.commit();
  for (int t = 0; t < 3; ++t) {
    solo.engine.pass({{0, grad}});
    EXPECT_EQ(solo.engine.step().updates, 300);
    step(optimizer, {flat.shard()});
  }
  EXPECT_EQ(solo.engine.read(0), flat.weights());
}

// Both halves take the rate of their update: one that a schedule gives, or that a caller sets.
TEST(Muon, AScheduleGivesTheRatesOfBothHalves) {
  const std::string cosine =
      R"(, "scheduler": {"type": "Cosine", "params": {"total_num_steps": 6, "min_ratio": 0.5}}})";
  const std::string plain = config();
  const std::string scheduled = plain.substr(0, plain.size() - 1) + cosine;
  Solo a(scheduled), b(plain);
  for (Solo* solo : {&a, &b}) {
    solo->engine.add("w", {12, 25}, irrational(300, 1));
    solo->engine.add("bias", {300}, irrational(300, 2));
    solo->engine.commit();
  }
  for (int t = 0; t < 8; ++t) {
    const double share = 0.5 + 0.5 * (1 + std::cos(std::numbers::pi * std::min(6, t) / 6)) / 2;
    EXPECT_OK(otr_engine_set_group_value(b.engine.get(), nullptr, "lr", 0.1 * share));
    for (Solo* solo : {&a, &b}) {
      solo->engine.pass({{0, irrational(300, 3 + t)}, {1, irrational(300, 20 + t)}});
      EXPECT_NEAR(solo->engine.step().lr, 0.1 * share, 1e-12);
    }
    for (const int64_t id : {0, 1}) {
      const Values got = a.engine.read(id), expected = b.engine.read(id);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-6) << t;
    }
  }
}

// Engines that step as one, divided over ranks, have the bits of each alone; a skip is all's.
TEST(Muon, InAJointStep) {
  const auto adam = std::string(R"({"optimizer": {"type": "AdamW"}, "gradient_clipping": 0})");
  const std::string given = config();
  const std::string muon = given.substr(0, given.size() - 1) + R"(, "gradient_clipping": 0})";
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine one(comm, muon), other(comm, adam), alone(comm, muon);
    for (Engine* engine : {&one, &other, &alone}) {
      engine->add("w", {12, 25}, irrational(300, 1));
      engine->add("v", {40, 30}, irrational(1200, 2));
      engine->commit();
    }
    otr_engine* const engines[2] = {one.get(), other.get()};
    otr_step_report reports[2] = {OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT};
    const auto pass = [&](const Engine& engine, int t, double last = 0.5) {
      Values v = irrational(1200, 40 + 2 * t + rank);
      v.back() = last;
      engine.pass({{0, irrational(300, 3 + 2 * t + rank)}, {1, v}});
    };
    for (int t = 0; t < 4; ++t) {
      pass(one, t);
      pass(other, t, t == 2 && rank == 1 ? INFINITY : 0.5);
      ASSERT_OK(otr_step_many(engines, 2, nullptr, reports));
      EXPECT_EQ(reports[0].outcome, t == 2 ? OTR_STEP_SKIPPED : OTR_STEP_APPLIED);
      if (t == 2) continue;
      pass(alone, t);
      EXPECT_EQ(alone.step().outcome, OTR_STEP_APPLIED);
      EXPECT_EQ(one.everything(), alone.everything()) << t;
    }
  });
}

// Seconds of a step with one matrix of n rows and columns, on each of `world` ranks.
double seconds_of_a_step(int64_t n, int32_t world, double timeout) {
  double seconds = 0;
  run_ranks(
      world,
      [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config());
        engine.add("w", {n, n}, irrational(n * n, 1));
        engine.commit();
        engine.pass({{0, irrational(n * n, 2)}});
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        if (rank == 0) seconds = time.count();
      },
      timeout);
  return seconds;
}

// A rank that computes is none that hangs: the others wait for longer than the timeout.
TEST(Muon, LongIterationsPassNoDeadline) {
  int64_t n = 800;  // of more work than goes without a meeting
  double seconds = seconds_of_a_step(n, 1, 20);
  while (seconds < 1.5) {
    n += n / 4;
    seconds = seconds_of_a_step(n, 1, 20);
  }
  seconds_of_a_step(n, 2, 0.7 * seconds);
}

TEST(Muon, SaysWhatItCannotDo) {
  const auto context = make_context();
  const auto comm = make_self(context.get());
  const auto expect = [&](int32_t status, const std::string& json,
                          std::initializer_list<std::string_view> parts) {
    otr_engine* engine = nullptr;
    EXPECT_TRUE(failed(status, otr_engine_create(comm.get(), json.c_str(), &engine), parts))
        << json;
  };
  expect(OTR_E_CONFIG, config("", R"(, "dampening": 0.5)"),
         {"dampening", "no parameter of", "Muon", "ns_steps"});
  expect(OTR_E_CONFIG, config("", R"(, "ns_steps": 0)"), {"ns_steps = 0", "from 1 to 99"});
  expect(OTR_E_UNSUPPORTED, config("", R"(, "per_head_muon": true)"), {"per_head_muon", "head"});
  expect(OTR_E_CONFIG, config("", R"(, "adam_lr": 1, "muon_lr": 1)"),
         {"lr = 0.1", "no effect", "muon_lr"});
  expect(OTR_E_CONFIG, config(R"("muon": {"adam_parameters": ["a", ""]})"),
         {"adam_parameters", "empty text"});
  expect(OTR_E_CONFIG, R"({"optimizer": {"type": "AdamW", "params": {"adam_lr": 1}}})",
         {"adam_lr", "no parameter of", "AdamW"});
  expect(OTR_E_CONFIG, R"({"outrigger": {"muon": {"adam_parameters": ["wte"]}}})",
         {"adam_parameters", "AdamW", "leave it out"});
  Solo solo(config());
  solo.engine.add("w", {2, 2}, Values(4, 0));
  solo.engine.commit();
  const Tensor out = Tensor::filled({2, 2}, 0);
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_engine_parameter_read(solo.engine.get(), 0, OTR_VALUE_EXP_AVG_SQ, &out), "\"w\"",
               "matrix", "exp_avg only");
}

}  // namespace
