// SPDX-License-Identifier: Apache-2.0
// otr_context: options, the log.
#include <atomic>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;

TEST(Context, RefusesOptionsOutOfRange) {
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  otr_context* context = nullptr;
  for (const int32_t workers : {-1, 1 << 20}) {
    options.workers = workers;
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_context_create(&options, &context), "workers",
                 std::to_string(workers));
    EXPECT_EQ(context, nullptr);
  }
  options.workers = 1;
  for (const int32_t level : {0, 5, -1}) {
    options.log_level = level;
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_context_create(&options, &context), "log_level",
                 std::to_string(level));
    EXPECT_EQ(context, nullptr);
  }
}

TEST(Context, IsMadeFromAnyThread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int n = 0; n < 20; ++n) {
        otr_context* context = nullptr;
        EXPECT_OK(otr_context_create(nullptr, &context));
        otr_context_destroy(context);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What a log callback saw.
struct Log {
  std::atomic<int> inside{0};
  std::vector<std::pair<int32_t, std::string>> lines;
  static void receive(int32_t level, const char* text, void* user_data) {
    auto& log = *static_cast<Log*>(user_data);
    EXPECT_EQ(log.inside.fetch_add(1), 0) << "two calls at a time";
    log.lines.emplace_back(level, text);
    log.inside.fetch_sub(1);
  }
};

// A second moment in bfloat16 that rounds to nearest stops moving: the engine warns about it.
const char* const kWarned = R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
  "bf16_optimizer_states": true}, "zero_optimization": {"stage": 1}})";

TEST(Context, LogsOneLineWithoutANewline) {
  Log log;
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  options.log_callback = Log::receive;
  options.log_user_data = &log;
  otr_context* context = nullptr;
  ASSERT_OK(otr_context_create(&options, &context));
  const Owned<otr_context> owned(context);
  const auto comm = make_self(context);
  Engine engine(comm.get(), kWarned);
  ASSERT_FALSE(log.lines.empty());
  for (const auto& [level, text] : log.lines) {
    EXPECT_EQ(level, OTR_LOG_WARNING);
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(Context, LogsWhatAnOptimizerAloneWarnsOf) {
  Log log;
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  options.log_callback = Log::receive;
  options.log_user_data = &log;
  otr_context* context = nullptr;
  ASSERT_OK(otr_context_create(&options, &context));
  const Owned<otr_context> owned(context);
  otr_optimizer* optimizer = nullptr;
  ASSERT_OK(otr_optimizer_create(
      context, R"({"type": "AdamW", "params": {"fp32_optimizer_states": true}, "states": {
        "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}})",
      &optimizer));
  otr_optimizer_destroy(optimizer);
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_NE(log.lines[0].second.find("fp32_optimizer_states"), std::string::npos)
      << log.lines[0].second;
}

TEST(Context, LogsNothingAboveItsLevel) {
  Log log;
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  options.log_callback = Log::receive;
  options.log_user_data = &log;
  options.log_level = OTR_LOG_ERROR;
  otr_context* context = nullptr;
  ASSERT_OK(otr_context_create(&options, &context));
  const Owned<otr_context> owned(context);
  const auto comm = make_self(context);
  Engine engine(comm.get(), kWarned);
  EXPECT_TRUE(log.lines.empty());
}

// One line for each thing that an engine's life has, at its level.
TEST(Context, LogsWhatAnEngineIsAndDoes) {
  Log log;
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  options.log_callback = Log::receive;
  options.log_user_data = &log;
  options.log_level = OTR_LOG_DEBUG;
  otr_context* context = nullptr;
  ASSERT_OK(otr_context_create(&options, &context));
  const Owned<otr_context> owned(context);
  const auto comm = make_self(context);
  Engine engine(comm.get(),
                R"({"fp16": {"enabled": true, "initial_scale_power": 4, "hysteresis": 1},
                               "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}})");
  log.lines.clear();
  const auto expect_line = [&](int32_t level, const std::vector<std::string>& parts) {
    ASSERT_EQ(log.lines.size(), 1U);
    EXPECT_EQ(log.lines[0].first, level);
    for (const std::string& part : parts) {
      EXPECT_NE(log.lines[0].second.find(part), std::string::npos) << log.lines[0].second;
    }
    log.lines.clear();
  };
  const int64_t id = engine.add("layer.weight", {3}, Values(3, 1));
  engine.commit();
  expect_line(OTR_LOG_INFO, {"rank 0 of 1 over self", "1 parameters, 3 elements", "stage 2",
                             "peak so far ", "(blocks not touched yet are not counted)"});
  engine.pass({{id, {48, 64, 0}}});
  EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  expect_line(OTR_LOG_DEBUG, {"step 1", "gradient norm 5", "clipped by 0.", "loss scale 16"});
  engine.pass({{id, {1, INFINITY, 0}}});
  EXPECT_EQ(engine.step().outcome, OTR_STEP_SKIPPED);
  expect_line(OTR_LOG_INFO,
              {"step 2 was skipped", "'layer.weight'", "on rank 0", "was 16 and is 8"});
  EXPECT_OK(otr_engine_abort(engine.get(), "given up here"));
  EXPECT_EQ(otr_engine_check(engine.get()), OTR_E_ABORTED);
  expect_line(OTR_LOG_ERROR, {"destroyed", "given up here"});
  EXPECT_NE(otr_engine_check(engine.get()), OTR_OK);
  EXPECT_TRUE(log.lines.empty());  // once
}

TEST(Context, LogsFromManyEnginesOneAtATime) {
  Log log;
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  options.log_callback = Log::receive;
  options.log_user_data = &log;
  otr_context* context = nullptr;
  ASSERT_OK(otr_context_create(&options, &context));
  const Owned<otr_context> owned(context);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto comm = make_self(context);
      for (int n = 0; n < 10; ++n) Engine(comm.get(), kWarned).reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(log.lines.size(), 40U);
}

}  // namespace
