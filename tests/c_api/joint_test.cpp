// SPDX-License-Identifier: Apache-2.0
// Several engines under one loss: one step, and gradients that pass from one engine to another.
#include <barrier>
#include <cmath>
#include <map>
#include <mutex>

#include "support.h"

namespace {

using namespace otr_test;

std::string config(const std::string& members) {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.0625}}, )" + members + "}";
}

TEST(Joint, OneNormOneCoefficientOneSkip) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine a(comm, config(R"("gradient_clipping": 2)"));
    Engine b(comm, config(R"("gradient_clipping": 2, "zero_optimization": {"stage": 2})"));
    a.add("a", {9}, Values(9, 1));
    b.add("b", {16}, Values(16, 1));
    a.commit();
    b.commit();
    otr_engine* const engines[2] = {a.get(), b.get()};
    otr_step_report reports[2] = {OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT};
    a.pass({{0, Values(9, 1)}});
    b.pass({{0, Values(16, 1)}});
    ASSERT_OK(otr_step_many(engines, 2, nullptr, reports));
    for (const auto& report : reports) {
      EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
      EXPECT_EQ(report.grad_norm, 5) << "3 and 4";
      EXPECT_NEAR(report.clip_coefficient, 0.4, 1e-6);
    }
    EXPECT_NEAR(a.read(0, OTR_VALUE_EXP_AVG)[0], 0.04, 1e-7);

    const auto before = a.everything();
    a.pass({{0, Values(9, 1)}});
    b.pass({{0, Values(16, rank == 1 ? INFINITY : 1)}});
    ASSERT_OK(otr_step_many(engines, 2, nullptr, reports));
    EXPECT_EQ(reports[0].outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(reports[0].reason, OTR_SKIP_JOINT);
    EXPECT_EQ(reports[1].reason, OTR_SKIP_NONFINITE);
    EXPECT_EQ(reports[1].nonfinite_rank, 1);
    EXPECT_EQ(a.everything(), before);
  });
}

TEST(Joint, RefusesWhatCannotStepTogether) {
  Solo solo("");
  Engine a(solo.comm.get(), config(R"("gradient_accumulation_steps": 2, "gradient_clipping": 0)"));
  Engine b(solo.comm.get(), config(R"("gradient_clipping": 1)"));
  Engine c(solo.comm.get(), config(R"("gradient_clipping": 0)"));
  for (Engine* e : {&a, &b, &c}) {
    e->add("w", {4}, Values(4, 1));
    e->commit();
  }
  const auto many = [](const Engine& x, const Engine& y) {
    otr_engine* const engines[2] = {x.get(), y.get()};
    return otr_step_many(engines, 2, nullptr, nullptr);
  };
  EXPECT_FAILS(OTR_E_STATE, many(b, c), "no backward pass");
  for (Engine* e : {&a, &b, &c}) e->pass({{0, Values(4, 1)}});
  const auto before = c.everything();
  EXPECT_FAILS(OTR_E_STATE, many(c, a), "engine 1", "1 of 2");
  EXPECT_FAILS(OTR_E_ARGUMENT, many(c, c), "twice");
  EXPECT_FAILS(OTR_E_CONFIG, many(c, b), "gradient_clipping", "0", "1");
  EXPECT_EQ(c.everything(), before);
  EXPECT_EQ(c.step().outcome, OTR_STEP_APPLIED) << "the refusal changed nothing";
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_step_many(nullptr, 0, nullptr, nullptr), "count is 0");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_step_many(nullptr, 2, nullptr, nullptr), "engines");
  otr_engine* const none[1] = {nullptr};
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_step_many(none, 1, nullptr, nullptr), "engine");
}

// Groups that do not share engines: a rank that cannot take part tells the others.
TEST(Joint, OfTwoGroupsFailsTogetherAndThenGoesOn) {
  run_ranks(2, [&](int32_t rank, otr_comm* joint) {
    Solo solo(config(R"("gradient_clipping": 0)"));
    solo.engine.add("w", {4}, Values(4, 1));
    solo.engine.commit();
    otr_engine* const engines[1] = {solo.engine.get()};
    otr_step_report report = OTR_STEP_REPORT_INIT;
    if (rank == 0) solo.engine.pass({{0, Values(4, 3)}});
    const auto before = solo.engine.everything();
    if (rank == 0) {
      EXPECT_FAILS(OTR_E_ABORTED, otr_step_many(engines, 1, joint, &report), "rank 1",
                   "no backward pass", "nothing was updated");
    } else {
      EXPECT_FAILS(OTR_E_STATE, otr_step_many(engines, 1, joint, &report), "no backward pass");
      solo.engine.pass({{0, Values(4, 4)}});
    }
    EXPECT_EQ(solo.engine.everything(), before);
    ASSERT_OK(otr_step_many(engines, 1, joint, &report));
    EXPECT_EQ(report.grad_norm, 10) << "6 and 8";
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  });
}

// ---- Two engines in a chain
// -----------------------------------------------------------------------
//
// y = B (A x), loss = mean over the samples of |y - t|^2 / 2. Engine A has the columns of A, engine
// B those of B; each has ranks, accumulation and a loss scale of its own, and its micro-batches
// divide the same samples.

constexpr int64_t kIn = 3, kHidden = 4, kOut = 2;
constexpr int64_t kSamples = 36, kSteps = 3;

double input(int64_t sample, int64_t i) { return std::sin(static_cast<double>(7 * sample + i)); }
double target(int64_t sample, int64_t i) { return std::cos(static_cast<double>(5 * sample + i)); }
Values weights_a() { return dyadic(kHidden * kIn, 3); }
Values weights_b() { return dyadic(kOut * kHidden, 4); }

Values hidden(const Values& a, int64_t sample) {
  Values h(kHidden, 0);
  for (int64_t i = 0; i < kHidden; ++i) {
    for (int64_t j = 0; j < kIn; ++j)
      h[static_cast<size_t>(i)] += a[static_cast<size_t>(i * kIn + j)] * input(sample, j);
  }
  return h;
}

// dloss/dy of one sample, where the loss is the mean over `count` samples.
Values error(const Values& b, const Values& h, int64_t sample, int64_t count) {
  Values e;
  for (int64_t i = 0; i < kOut; ++i) {
    double y = 0;
    for (int64_t j = 0; j < kHidden; ++j)
      y += b[static_cast<size_t>(i * kHidden + j)] * h[static_cast<size_t>(j)];
    e.push_back((y - target(sample, i)) / static_cast<double>(count));
  }
  return e;
}

// Adds the outer product of two vectors.
void add_outer(Values& into, const Values& left, const Values& right) {
  for (size_t i = 0; i < left.size(); ++i) {
    for (size_t j = 0; j < right.size(); ++j) into[i * right.size() + j] += left[i] * right[j];
  }
}

Values transposed_times(const Values& b, const Values& e) {
  Values d(kHidden, 0);
  for (int64_t i = 0; i < kOut; ++i) {
    for (int64_t j = 0; j < kHidden; ++j)
      d[static_cast<size_t>(j)] +=
          b[static_cast<size_t>(i * kHidden + j)] * e[static_cast<size_t>(i)];
  }
  return d;
}

struct Weights {
  Values a, b;
};

// Everything in one engine, one rank, one pass a step.
Weights monolithic(double clip) {
  Solo solo(config(R"("gradient_clipping": )" + std::to_string(clip)));
  solo.engine.add("a", {kHidden, kIn}, weights_a());
  solo.engine.add("b", {kOut, kHidden}, weights_b());
  solo.engine.commit();
  for (int64_t step = 0; step < kSteps; ++step) {
    const Values a = solo.engine.read(0), b = solo.engine.read(1);
    Values da(a.size(), 0), db(b.size(), 0);
    for (int64_t s = 0; s < kSamples; ++s) {
      const Values h = hidden(a, s), e = error(b, h, s, kSamples);
      add_outer(db, e, h);
      Values x;
      for (int64_t j = 0; j < kIn; ++j) x.push_back(input(s, j));
      add_outer(da, transposed_times(b, e), x);
    }
    solo.engine.pass({{1, db}, {0, da}});
    EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
  }
  return {solo.engine.read(0), solo.engine.read(1)};
}

struct Part {
  int32_t ranks, accumulation;
  double loss_scale;
};

std::string chained(const Part& part, double clip, int32_t stage) {
  return config(R"("torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": )" +
                std::to_string(part.loss_scale) + R"(}, "gradient_clipping": )" +
                std::to_string(clip) + R"(, "gradient_accumulation_steps": )" +
                std::to_string(part.accumulation) + R"(, "zero_optimization": {"stage": )" +
                std::to_string(stage) + "}");
}

// What crosses from B's ranks to A's, and the weights that both sides need for the forward.
struct Bridge {
  std::mutex mutex;
  std::map<int64_t, Values> hidden_grads;  // by sample
  otr_call_info tag{};
  Values a, b;
};

// The samples of one micro-batch.
std::pair<int64_t, int64_t> samples_of(const Part& part, int32_t rank, int32_t micro) {
  const int64_t each = kSamples / (part.ranks * part.accumulation);
  const int64_t first = (micro * part.ranks + rank) * each;
  return {first, first + each};
}

class Side {
 public:
  Side(otr_comm* comm, otr_comm* joint, const Part& part, Bridge& bridge, int32_t rank)
      : joint_(joint), part_(part), bridge_(bridge), rank_(rank), comm_(comm) {}

  // B: from its samples' errors to the hidden gradients.
  void backward_b(const Engine& engine, int32_t micro) {
    const auto [first, last] = samples_of(part_, rank_, micro);
    Values errors;
    for (int64_t s = first; s < last; ++s) {
      const Values e = error(bridge_.b, hidden(bridge_.a, s), s, last - first);
      errors.insert(errors.end(), e.begin(), e.end());
    }
    const Tensor output({last - first, kOut}, errors);
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(engine.get(), &output, 1, nullptr, &pass));
    const Owned<otr_pass> owned(pass);
    otr_tensor scaled;
    ASSERT_OK(otr_pass_get_output_grad(pass, 0, &scaled));
    const Values seeds = values_of(scaled);
    Values db(kOut * kHidden, 0);
    for (int64_t s = first; s < last; ++s) {
      const auto at = seeds.begin() + (s - first) * kOut;
      const Values e(at, at + kOut);
      add_outer(db, e, hidden(bridge_.a, s));
      const std::lock_guard lock(bridge_.mutex);
      bridge_.hidden_grads[s] = transposed_times(bridge_.b, e);
    }
    {
      const std::lock_guard lock(bridge_.mutex);
      EXPECT_OK(otr_call_info_init(&bridge_.tag, sizeof bridge_.tag));
      EXPECT_OK(otr_pass_get_tag(pass, &bridge_.tag));
    }
    Engine::add(owned, 0, {kOut, kHidden}, db);
    Engine::end(owned);
  }

  // A: from the hidden gradients to its own.
  void backward_a(const Engine& engine, int32_t micro) {
    const auto [first, last] = samples_of(part_, rank_, micro);
    Values grads;
    for (int64_t s = first; s < last; ++s) {
      const Values& d = bridge_.hidden_grads.at(s);
      grads.insert(grads.end(), d.begin(), d.end());
    }
    const Tensor output({last - first, kHidden}, grads);
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(engine.get(), &output, 1, &bridge_.tag, &pass));
    const Owned<otr_pass> owned(pass);
    otr_tensor scaled;
    ASSERT_OK(otr_pass_get_output_grad(pass, 0, &scaled));
    const Values seeds = values_of(scaled);
    Values da(kHidden * kIn, 0);
    for (int64_t s = first; s < last; ++s) {
      const auto at = seeds.begin() + (s - first) * kHidden;
      Values x;
      for (int64_t j = 0; j < kIn; ++j) x.push_back(input(s, j));
      add_outer(da, Values(at, at + kHidden), x);
    }
    Engine::add(owned, 0, {kHidden, kIn}, da);
    Engine::end(owned);
  }

  void train(bool is_a, double clip, int32_t stage) {
    Engine engine(comm_, chained(part_, clip, stage));
    if (is_a) {
      engine.add("a", {kHidden, kIn}, weights_a());
    } else {
      engine.add("b", {kOut, kHidden}, weights_b());
    }
    engine.commit();
    otr_engine* const engines[1] = {engine.get()};
    for (int64_t step = 0; step < kSteps; ++step) {
      share(engine, is_a);
      for (const bool turn : {false, true}) {  // B's backward, then A's
        for (int32_t micro = 0; turn == is_a && micro < part_.accumulation; ++micro) {
          if (is_a) {
            backward_a(engine, micro);
          } else {
            backward_b(engine, micro);
          }
          if (micro + 1 < part_.accumulation) {
            EXPECT_EQ(engine.step().outcome, OTR_STEP_ACCUMULATED);
          }
        }
        ASSERT_OK(otr_comm_barrier(joint_));
      }
      otr_step_report report = OTR_STEP_REPORT_INIT;
      ASSERT_OK(otr_step_many(engines, 1, joint_, &report));
      EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    }
    share(engine, is_a);
  }

 private:
  // Lets everybody see this engine's weights.
  void share(const Engine& engine, bool is_a) {
    const Values mine = engine.read(0);
    {
      const std::lock_guard lock(bridge_.mutex);
      (is_a ? bridge_.a : bridge_.b) = mine;
    }
    ASSERT_OK(otr_comm_barrier(joint_));
  }

  otr_comm* joint_;
  Part part_;
  Bridge& bridge_;
  int32_t rank_;
  otr_comm* comm_;
};

Weights in_a_chain(const Part& a, const Part& b, double clip, int32_t stage) {
  Bridge bridge;
  const auto context = make_context(1);
  std::vector<otr_comm*> of_a(static_cast<size_t>(a.ranks)), of_b(static_cast<size_t>(b.ranks));
  EXPECT_OK(otr_comm_create_threads(context.get(), a.ranks, nullptr, of_a.data()));
  EXPECT_OK(otr_comm_create_threads(context.get(), b.ranks, nullptr, of_b.data()));
  std::vector<Owned<otr_comm>> owned;
  for (const auto* list : {&of_a, &of_b}) {
    for (otr_comm* comm : *list) owned.emplace_back(comm);
  }
  run_ranks(a.ranks + b.ranks, [&](int32_t rank, otr_comm* joint) {
    const bool is_a = rank < a.ranks;
    const int32_t own = is_a ? rank : rank - a.ranks;
    otr_comm* comm = (is_a ? of_a : of_b)[static_cast<size_t>(own)];
    Side(comm, joint, is_a ? a : b, bridge, own).train(is_a, clip, stage);
  });
  return {bridge.a, bridge.b};
}

TEST(Chain, OfTwoEnginesGivesTheParametersOfOne) {
  const Part parts[] = {{1, 1, 8}, {2, 3, 1024}, {3, 2, 64}, {1, 3, 256}, {2, 1, 24}};
  for (const double clip : {0.0, 0.25}) {
    const Weights expected = monolithic(clip);
    EXPECT_NE(expected.a, weights_a());
    for (const Part& a : parts) {
      for (const Part& b : parts) {
        const int32_t stage = (a.ranks + b.accumulation) % 4;
        const Weights got = in_a_chain(a, b, clip, stage);
        ASSERT_EQ(got.a.size(), expected.a.size());
        for (size_t i = 0; i < got.a.size(); ++i) EXPECT_NEAR(got.a[i], expected.a[i], 2e-6);
        for (size_t i = 0; i < got.b.size(); ++i) EXPECT_NEAR(got.b[i], expected.b[i], 2e-6);
        if (testing::Test::HasFailure()) {
          FAIL() << "A " << a.ranks << " ranks, accumulation " << a.accumulation << ", B "
                 << b.ranks << ", " << b.accumulation << ", stage " << stage << ", clip " << clip;
        }
      }
    }
  }
}

}  // namespace
