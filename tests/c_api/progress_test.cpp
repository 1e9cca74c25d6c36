// SPDX-License-Identifier: Apache-2.0
// A run that is stopped and goes on in another engine: its progress and its values are all of it.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <regex>

#include "support.h"

namespace {

using namespace otr_test;

std::string progress_of(const Engine& engine) {
  size_t size = 0;
  EXPECT_OK(otr_engine_get_progress(engine.get(), nullptr, &size));
  std::string text(size, 'x');
  EXPECT_OK(otr_engine_get_progress(engine.get(), text.data(), &size));
  text.resize(size - 1);
  return text;
}

// ---- One run ------------------------------------------------------------------------------------

constexpr int kStop = 9, kEnd = 22;  // windows
constexpr int64_t kParameters = 4;
const Shape kShapes[kParameters] = {{24, 32}, {300}, {7}, {16, 16}};

// Parameter 1 has a gradient in every third window only; some windows overflow, and some are
// outliers. Other values on each rank.
Values gradient(int window, int micro, int64_t id, int32_t rank) {
  Values values = dyadic(kShapes[id][0] * (kShapes[id].size() > 1 ? kShapes[id][1] : 1),
                         window * 31 + micro * 7 + id * 3 + rank * 11 + 1);
  if (window == 9 || window == 19) {
    for (double& v : values) v *= 64;
  }
  const bool overflows = window == 2 || window == 8 || window == 12 || window == 13;
  if (overflows && rank == 0) values.front() = std::numeric_limits<double>::infinity();
  return values;
}

struct Training {
  Training(otr_comm* comm, const std::string& config, int32_t rank)
      : engine(comm, config), rank(rank) {
    otr_param_options own = param_options();
    own.group = "own";
    for (int64_t id = 0; id < kParameters; ++id) {
      const std::string name = "p" + std::to_string(id);
      engine.add(name.c_str(), kShapes[id], Values(static_cast<size_t>(count_of(kShapes[id])), 0),
                 id == 3 ? &own : nullptr);
    }
    engine.commit();
  }

  // Windows [begin, end). What a step is called in these is in the reports.
  void go(int begin, int end, int32_t accumulation) {
    for (int window = begin; window < end; ++window) {
      for (int micro = 0; micro < accumulation; ++micro) {
        const auto pass = engine.begin();
        for (int64_t id = 0; id < kParameters; ++id) {
          if ((id == 1 && window % 3 != 0) || (id == 2 && freezes)) continue;
          Engine::add(pass, id, kShapes[id], gradient(window, micro, id, rank));
        }
        Engine::end(pass);
        reports.push_back(engine.step());
      }
    }
  }
  // What the host sets in the middle of a run.
  void set_by_hand(bool lr) {
    if (lr) {
      EXPECT_OK(otr_engine_set_group_value(engine.get(), "own", "lr", 0.03125));
    }
    EXPECT_OK(otr_engine_set_group_value(engine.get(), "own", "weight_decay", 0.5));
    EXPECT_OK(otr_engine_set_trainable(engine.get(), 2, 0));
    freezes = true;
  }

  Engine engine;
  int32_t rank;
  bool freezes = false;
  std::vector<otr_step_report> reports;
};

// The values of `from`, one at a time, as a checkpoint would hold them.
void copy_values(const Engine& from, const Engine& to) {
  for (int64_t id = 0; id < kParameters; ++id) {
    for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; ++value) {
      if (value == OTR_VALUE_PUBLISHED) continue;
      const Tensor copy = Tensor::filled(kShapes[id], 0);
      const int32_t status = otr_engine_parameter_read(from.get(), id, value, &copy);
      if (status == OTR_E_NOT_FOUND) continue;
      EXPECT_OK(status);
      EXPECT_OK(otr_engine_parameter_write(to.get(), id, value, &copy));
    }
  }
}

bool same(const otr_step_report& a, const otr_step_report& b) {
  return a.outcome == b.outcome && a.reason == b.reason && a.micro_steps == b.micro_steps &&
         a.applied_steps == b.applied_steps && a.skipped_steps == b.skipped_steps &&
         (a.grad_norm == b.grad_norm || std::isnan(a.grad_norm)) &&
         a.clip_coefficient == b.clip_coefficient && a.loss_scale == b.loss_scale && a.lr == b.lr &&
         a.updates == b.updates && a.vanished == b.vanished;
}

// From the stop on: reports, and values at the end.
bool same_end(const Training& whole, const Training& resumed) {
  EXPECT_LT(resumed.reports.size(), whole.reports.size());
  const auto offset = whole.reports.size() - resumed.reports.size();
  bool equal = whole.engine.everything() == resumed.engine.everything();
  for (size_t i = 0; i < resumed.reports.size(); ++i) {
    equal = equal && same(whole.reports[offset + i], resumed.reports[i]);
  }
  return equal;
}

struct Case {
  const char *name, *config;
  int32_t accumulation = 1;
  bool sets_lr = true;
  int32_t least_stage = 0;
};
constexpr const char* kScaling =
    R"("fp16": {"enabled": true, "initial_scale_power": 8, "loss_scale_window": 3, "hysteresis": 2})";
const std::string kGuard = R"("skip_outlier_norms": {"window": 6, "deviations": 3})";
std::string config_of(const Case& c, int32_t stage) {
  return R"({"zero_optimization": {"reduce_bucket_size": 512, "stage": )" + std::to_string(stage) +
         R"(}, "gradient_accumulation_steps": )" + std::to_string(c.accumulation) + ", " +
         std::regex_replace(std::regex_replace(c.config, std::regex("SCALING"), kScaling),
                            std::regex("GUARD"), kGuard) +
         "}";
}
constexpr Case kCases[] = {
    {"AdamW", R"("optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "gradient_clipping": 1)"},
    {"Everything",
     R"(SCALING, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "gradient_clipping": 1,
        "scheduler": {"type": "WarmupCosineLR",
                      "params": {"total_num_steps": 30, "warmup_num_steps": 4}},
        "outrigger": {GUARD})",
     2},
    {"OneCycle",
     R"("bf16": {"enabled": true}, "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.001, "cycle_max_lr": 0.1,
                                                     "cycle_first_step_size": 5}})",
     1, false},
    {"StochasticBf16",
     R"("bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "gradient_clipping": 0,
        "outrigger": {"seed": 77, "states": {
          "master": {"format": "bfloat16", "rounding": "stochastic"},
          "exp_avg": {"format": "bfloat16", "rounding": "stochastic"},
          "exp_avg_sq": {"format": "bfloat16", "rounding": "stochastic"}}})",
     1, true, 1},
    {"SplitAndBlocks",
     R"("bf16": {"enabled": true}, "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        "outrigger": {"states": {"master": {"format": "split"}, "exp_avg": {"format": "block8"},
                                 "exp_avg_sq": {"format": "block8"}}})"},
    {"Momentum", R"("optimizer": {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.875}})"},
    {"Adagrad", R"("optimizer": {"type": "Adagrad", "params": {"lr": 0.01}})"},
    {"Lion", R"("optimizer": {"type": "Lion", "params": {"lr": 0.01}})"},
    {"Lamb", R"("optimizer": {"type": "Lamb", "params": {"lr": 0.01}})"},
    {"Muon", R"("bf16": {"enabled": true}, "optimizer": {"type": "Muon", "params": {"lr": 0.01}})"},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Resume : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, Resume, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(Resume, GoesOnWithTheSameBits) {
  const Case& c = GetParam();
  for (const int32_t stage : {0, 1, 3}) {
    if (stage < c.least_stage) continue;
    std::mutex mutex;
    int without = 0;
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      const std::string config = config_of(c, stage);
      Training whole(comm, config, rank);
      whole.go(0, kStop / 2, c.accumulation);
      whole.set_by_hand(c.sets_lr);
      whole.go(kStop / 2, kStop, c.accumulation);
      const std::string text = progress_of(whole.engine);

      Training resumed(comm, config, rank), bare(comm, config, rank);
      Training moved(comm, config_of(c, stage == 3 ? 1 : 3), rank);
      for (Training* other : {&resumed, &bare, &moved}) {
        copy_values(whole.engine, other->engine);
        other->freezes = true;
      }
      EXPECT_OK(otr_engine_set_progress(resumed.engine.get(), text.c_str()));
      EXPECT_OK(otr_engine_set_progress(moved.engine.get(), text.c_str()));
      EXPECT_EQ(progress_of(resumed.engine), text);
      for (Training* run : {&whole, &resumed, &bare, &moved}) run->go(kStop, kEnd, c.accumulation);
      EXPECT_TRUE(same_end(whole, resumed)) << c.name << ", stage " << stage;
      EXPECT_TRUE(same_end(whole, moved)) << c.name << ", from stage " << stage;
      EXPECT_EQ(progress_of(resumed.engine), progress_of(whole.engine));
      const bool differs = !same_end(whole, bare);  // collective
      const std::lock_guard lock(mutex);
      if (differs) ++without;
    });
    EXPECT_EQ(without, 2) << c.name << ": the progress made no difference";
  }
}

// Each member counts: with another one the run has other bits or other reports.
TEST(Progress, EachMemberCounts) {
  const struct {
    const char *member, *other;
  } kMembers[] = {
      {R"("micro":\d+)", R"("micro":100)"},
      {R"("applied":\d+)", R"("applied":1)"},
      {R"("skipped":\d+)", R"("skipped":0)"},
      {R"("boundary":"configured")", R"("boundary":"yes")"},
      {R"("scale":[\d.]+)", R"("scale":4.0)"},
      {R"("windows":\d+)", R"("windows":11)"},
      {R"("last_overflow":\d+)", R"("last_overflow":5)"},
      {R"("hysteresis_left":\d+)", R"("hysteresis_left":2)"},
      {R"("outlier_norms":\[[^\]]*\])", R"("outlier_norms":[])"},
      {R"("lr":0.03125)", R"("lr":0.0625)"},
      {R"("weight_decay":0.5)", R"("weight_decay":0.25)"},
      {R"("frozen":\["p2"\])", R"("frozen":[])"},
      {R"("updates":\d+)", R"("updates":1)"},
      {R"("other_updates":\[.*?\]\])", R"("other_updates":[])"},
  };
  const Case& c = kCases[1];
  Solo first(config_of(c, 2));
  for (const auto& [member, other] : kMembers) {
    Solo solo("{}");
    Training whole(solo.comm.get(), config_of(c, 2), 0);
    whole.go(0, kStop / 2, c.accumulation);
    whole.set_by_hand(true);
    whole.go(kStop / 2, kStop, c.accumulation);
    const std::string text = progress_of(whole.engine);
    ASSERT_TRUE(std::regex_search(text, std::regex(member))) << member << " in " << text;
    const std::string changed = std::regex_replace(text, std::regex(member), other);
    ASSERT_NE(changed, text) << member;

    Training resumed(solo.comm.get(), config_of(c, 2), 0);
    copy_values(whole.engine, resumed.engine);
    // What is frozen takes no gradient: thawed, it has one.
    resumed.freezes = whole.freezes && text.find(R"("frozen":["p2"])") != std::string::npos &&
                      changed.find(R"("frozen":["p2"])") != std::string::npos;
    ASSERT_OK(otr_engine_set_progress(resumed.engine.get(), changed.c_str())) << changed;
    whole.go(kStop, kEnd, c.accumulation);
    resumed.go(kStop, kEnd, c.accumulation);
    EXPECT_FALSE(same_end(whole, resumed)) << member;
  }
}

// ---- Wrong use ----------------------------------------------------------------------------------

constexpr const char* kPlain =
    R"({"optimizer": {"params": {"lr": 0.01}}, "gradient_accumulation_steps": 2})";

TEST(Progress, IsTakenAndSetBetweenWindowsOnly) {
  Solo solo(kPlain);
  Engine& e = solo.engine;
  size_t size = 0;
  EXPECT_FAILS(OTR_E_STATE, otr_engine_get_progress(e.get(), nullptr, &size), "not committed");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_set_progress(e.get(), "{}"), "not committed");
  e.add("w", {4}, Values(4, 1));
  e.commit();
  const std::string text = progress_of(e);
  const auto refused = [&](const char* why) {
    EXPECT_FAILS(OTR_E_STATE, otr_engine_get_progress(e.get(), nullptr, &size), why);
    EXPECT_FAILS(OTR_E_STATE, otr_engine_set_progress(e.get(), text.c_str()), why);
  };
  {
    const auto pass = e.begin();
    refused("a backward pass is open");
    Engine::add(pass, 0, {4}, Values(4, 1));
    Engine::end(pass);
  }
  refused("otr_engine_discard");
  e.step();
  refused("otr_engine_discard");  // one of two micro-steps
  e.pass({{0, Values(4, 1)}});
  EXPECT_OK(otr_engine_reduce(e.get(), nullptr));
  refused("otr_engine_step");
  EXPECT_EQ(e.step().outcome, OTR_STEP_APPLIED);
  EXPECT_OK(otr_engine_set_progress(e.get(), text.c_str()));
  EXPECT_EQ(progress_of(e), text) << "rolled back";

  char buffer[8];
  size = sizeof buffer;
  EXPECT_FAILS(OTR_E_BUFFER_SIZE, otr_engine_get_progress(e.get(), buffer, &size), "8");
  EXPECT_EQ(size, text.size() + 1);
}

TEST(Progress, WhatDoesNotFitIsRefusedAndChangesNothing) {
  Solo solo(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.01}}})");
  Engine& e = solo.engine;
  e.add("w", {4}, Values(4, 1));
  e.add("v", {4}, Values(4, 1));
  otr_param_options options = param_options();
  options.trainable = 0;
  e.add("fixed", {4}, Values(4, 1), &options);
  e.commit();
  e.pass({{0, Values(4, 1)}});
  e.step();
  const std::string text = progress_of(e);
  const struct {
    const char *part, *other;
    int32_t status;
    std::vector<std::string_view> says;
  } kCasesOfFaults[] = {
      {R"("version":1)", R"("version":2)", OTR_E_CONFIG, {"version 2", "a later one"}},
      {R"("version":1)", R"("version":"1")", OTR_E_CONFIG, {"version", "an integer"}},
      {R"("micro":1)", R"("micro":0)", OTR_E_CONFIG, {"1 steps were applied", "the 0 made"}},
      {R"("applied":1)", R"("applied":-1)", OTR_E_CONFIG, {"steps.applied = -1", "0 to"}},
      {R"("applied":1)", R"("applied":1.5)", OTR_E_CONFIG, {"steps.applied = 1.5"}},
      {R"("applied":1,)", "", OTR_E_CONFIG, {"steps.applied is missing"}},
      {R"("applied":1)", R"("aplied":1,"applied":1)", OTR_E_CONFIG, {"steps.aplied is not known"}},
      {R"("configured")", R"("maybe")", OTR_E_CONFIG, {"boundary", "maybe", "\"yes\""}},
      {R"("scale":1.0)", R"("scale":-1)", OTR_E_CONFIG, {"loss_scaler.scale = -1", "at least 0"}},
      {R"("last_overflow":-1)",
       R"("last_overflow":18446744073709551615)",
       OTR_E_CONFIG,
       {"loss_scaler.last_overflow = 18446744073709551615"}},
      {R"("last_overflow":-1)", R"("last_overflow":9)", OTR_E_CONFIG, {"last_overflow = 9"}},
      {R"("scale":1.0)", R"("scale":1e999)", OTR_E_CONFIG, {"too large"}},
      {R"("outlier_norms":[])", R"("outlier_norms":[-1])", OTR_E_CONFIG, {"outlier_norms", "-1"}},
      {R"("outlier_norms":[])", R"("outlier_norms":{})", OTR_E_CONFIG, {"outlier_norms", "a list"}},
      {R"("lr":0.01)", R"("lr":-1.0)", OTR_E_ARGUMENT, {"group \"default\"", "lr = -1"}},
      {R"("lr":0.01)", R"("eps":1.0)", OTR_E_NOT_FOUND, {"eps", "SGD"}},
      {R"("default")", R"("other")", OTR_E_NOT_FOUND, {"other"}},
      {R"("trainable":2)", R"("trainable":3)", OTR_E_CONFIG, {"3 trainable", "has 2"}},
      {R"("frozen":[])", R"("frozen":["x"])", OTR_E_NOT_FOUND, {"x"}},
      {R"("frozen":[])", R"("frozen":["fixed"])", OTR_E_CONFIG, {"fixed", "declared frozen"}},
      {R"([["v",0]])", R"([["v"]])", OTR_E_CONFIG, {"other_updates", "a name and a number"}},
      {R"([["v",0]])", R"([["w",0],["u",1]])", OTR_E_NOT_FOUND, {"u"}},
      {R"([["v",0]])", R"([["v",0],["v",1]])", OTR_E_CONFIG, {"v", "two counts"}},
      {R"({"default":{)", R"({},"unused":{"default":{)", OTR_E_CONFIG, {"unused is not known"}},
      {R"("model":")", R"("model":"0)", OTR_E_CONFIG, {"other names or shapes"}},
      {R"("boundary","seed")", R"("bound","seed")", OTR_E_CONFIG, {"reduction_order = \"bound\""}},
      {R"("world":1)", R"("world":0)", OTR_E_CONFIG, {"made_with.world = 0"}},
      {R"("SGD"}})", R"("SGD"})", OTR_E_CONFIG, {"the text ends"}},
      {R"("SGD"}})", R"("SGD"}}x)", OTR_E_CONFIG, {"behind the end of the text"}},
  };
  std::string base = text;
  if (base.find(R"([["v",0]])") == std::string::npos) {  // of two counts either may be the usual
    base = std::regex_replace(base, std::regex(R"("updates":0)"), R"("updates":1)");
    base = std::regex_replace(base, std::regex(R"(\[\["w",1\]\])"), R"([["v",0]])");
  }
  for (const auto& fault : kCasesOfFaults) {
    const size_t at = base.find(fault.part);
    ASSERT_NE(at, std::string::npos) << fault.part << " in " << base;
    const std::string changed =
        std::string(base).replace(at, std::string(fault.part).size(), fault.other);
    const int32_t status = otr_engine_set_progress(e.get(), changed.c_str());
    EXPECT_TRUE(failed(fault.status, status, {})) << changed;
    for (const std::string_view says : fault.says) {
      EXPECT_NE(std::string_view(otr_last_error_message()).find(says), std::string_view::npos)
          << says << " in " << otr_last_error_message();
    }
    EXPECT_EQ(progress_of(e), text) << fault.other;
  }
  EXPECT_OK(otr_engine_set_progress(e.get(), base.c_str()));
}

TEST(Progress, OfAnotherWorldIsAWarning) {
  static std::mutex mutex;
  static std::vector<std::string> lines;
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  options.log_level = OTR_LOG_WARNING;
  options.log_callback = [](int32_t, const char* text, void*) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(text);
  };
  std::string text;
  {
    Solo solo(kPlain);
    solo.engine.add("w", {4}, Values(4, 1));
    solo.engine.commit();
    text = progress_of(solo.engine);
  }
  otr_context* context = nullptr;
  ASSERT_OK(otr_context_create(&options, &context));
  const Owned<otr_context> owned(context);
  run_ranks(context, 2, [&](int32_t, otr_comm* comm) {
    Engine e(comm, kPlain);
    e.add("w", {4}, Values(4, 1));
    e.commit();
    EXPECT_OK(otr_engine_set_progress(e.get(), text.c_str()));
  });
  ASSERT_EQ(lines.size(), 2U);
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("with 2 ranks"), std::string::npos) << line;
    EXPECT_NE(line.find("made with 1"), std::string::npos) << line;
  }
}

// What one rank cannot set, none sets, and all can go on.
TEST(Progress, RanksSetTheSameOrNone) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine e(comm, kPlain);
    e.add("w", {4}, Values(4, 1));
    e.commit();
    const std::string text = progress_of(e);
    const std::string other = std::regex_replace(text, std::regex(R"("micro":0)"), R"("micro":1)");
    EXPECT_FAILS(OTR_E_MISMATCH,
                 otr_engine_set_progress(e.get(), (rank == 2 ? other : text).c_str()), "rank 2");
    EXPECT_EQ(progress_of(e), text);
    const int32_t status =
        otr_engine_set_progress(e.get(), rank == 1 ? text.substr(0, 90).c_str() : text.c_str());
    if (rank == 1) {
      EXPECT_TRUE(failed(OTR_E_CONFIG, status, {"not JSON"}));
    } else {
      EXPECT_TRUE(failed(OTR_E_ABORTED, status, {"rank 1", "not JSON"}));
    }
    EXPECT_EQ(progress_of(e), text);
    EXPECT_OK(otr_engine_check(e.get()));
    EXPECT_OK(otr_engine_set_progress(e.get(), other.c_str()));
    EXPECT_EQ(progress_of(e), other);
  });
}

TEST(Progress, OfAnotherModelIsRefused) {
  const auto text_of = [](const char* name, int64_t count, const char* group) {
    Solo solo(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.01}}})");
    otr_param_options options = param_options();
    options.group = group;
    solo.engine.add("v", {4}, Values(4, 1));
    solo.engine.add(name, {count}, Values(static_cast<size_t>(count), 1), &options);
    solo.engine.commit();
    return progress_of(solo.engine);
  };
  Solo solo(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.01}}})");
  otr_param_options options = param_options();
  options.group = "g";
  solo.engine.add("w", {8}, Values(8, 1), &options);  // in another order
  solo.engine.add("v", {4}, Values(4, 1));
  solo.engine.commit();
  otr_engine* e = solo.engine.get();
  EXPECT_OK(otr_engine_set_progress(e, text_of("w", 8, "g").c_str()));
  EXPECT_FAILS(OTR_E_CONFIG, otr_engine_set_progress(e, text_of("x", 8, "g").c_str()), "names");
  EXPECT_FAILS(OTR_E_CONFIG, otr_engine_set_progress(e, text_of("w", 9, "g").c_str()), "shapes");
  EXPECT_FAILS(OTR_E_CONFIG, otr_engine_set_progress(e, text_of("w", 8, "default").c_str()),
               "no group", "\"g\"");
}

// Muon's adam_lr follows lr until it is set.
TEST(Progress, ARollbackRestoresWhatFollows) {
  Solo solo(R"({"optimizer": {"type": "Muon", "params": {"lr": 0.01}}})");
  solo.engine.add("w", {4, 4}, Values(16, 1));
  solo.engine.commit();
  otr_engine* e = solo.engine.get();
  const std::string text = progress_of(solo.engine);
  EXPECT_OK(otr_engine_set_group_value(e, nullptr, "adam_lr", 0.5));
  EXPECT_OK(otr_engine_set_progress(e, text.c_str()));
  EXPECT_EQ(progress_of(solo.engine), text);
  double value = 0;
  EXPECT_OK(otr_engine_set_group_value(e, nullptr, "lr", 0.25));
  EXPECT_OK(otr_engine_get_group_value(e, nullptr, "adam_lr", &value));
  EXPECT_EQ(value, 0.25);
}

TEST(Progress, NamesAreUtf8) {
  Solo solo("{}");
  int64_t shape[1] = {4}, id = 0;
  otr_tensor none;
  ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, shape, &none));
  otr_param_options options = param_options();
  options.group = "gr\xfcn";
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_add_parameter(solo.engine.get(), "caf\xe9", &none, nullptr, &id), "caf?",
               "UTF-8");
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_add_parameter(solo.engine.get(), "w", &none, &options, &id), "gr?n");
  solo.engine.add("caf\xc3\xa9 \xf0\x9f\x8d\xb5", {4}, Values(4, 1));
  solo.engine.commit();
  EXPECT_OK(otr_engine_set_trainable(solo.engine.get(), 0, 0));
  const std::string text = progress_of(solo.engine);
  EXPECT_NE(text.find("caf\xc3\xa9 \xf0\x9f\x8d\xb5"), std::string::npos);
  EXPECT_OK(otr_engine_set_progress(solo.engine.get(), text.c_str()));
}

}  // namespace
