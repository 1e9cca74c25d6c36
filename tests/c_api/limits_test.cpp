// SPDX-License-Identifier: Apache-2.0
// What a system limit, a fork or a size beyond reason leads to: a status, and a host that lives on.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "support.h"

namespace {

using namespace otr_test;

// Runs body in a forked child and expects that it returns true there, before the alarm ends it.
void in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

bool refused_in_child(int32_t status) {
  return status == OTR_E_STATE &&
         std::string_view(otr_last_error_message()).find("fork") != std::string_view::npos;
}

class Limits : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Limits, testing::ValuesIn(kKinds), name_of);

TEST_P(Limits, AForkedChildIsRefusedAndEnds) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {5000}, Values(5000, 1));
  solo.engine.commit();
  const auto pass = solo.engine.begin();
  in_child([&] {
    int64_t id = 0;
    otr_tensor t;
    const bool refused =
        refused_in_child(otr_comm_barrier(solo.comm.get())) &&
        refused_in_child(otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &t)) &&
        refused_in_child(otr_engine_step(solo.engine.get(), nullptr)) &&
        refused_in_child(otr_pass_end(pass.get()));
    otr_pass_destroy(pass.get());
    otr_engine_destroy(solo.engine.get());
    otr_comm_destroy(solo.comm.get());
    otr_context_destroy(solo.context.get());
    return refused;
  });
  Engine::add(pass, 0, {5000}, Values(5000, 1));  // the parent's are untouched
  Engine::end(pass);
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
}

TEST(LimitsOfFork, AnOptimizerAlone) {
  const auto context = make_context(2);
  otr_optimizer* optimizer = nullptr;
  ASSERT_OK(otr_optimizer_create(context.get(), R"({"type": "AdamW"})", &optimizer));
  in_child([&] {
    const bool refused = refused_in_child(otr_optimizer_step(optimizer, nullptr, 0, nullptr));
    otr_optimizer_destroy(optimizer);
    return refused;
  });
  otr_optimizer_destroy(optimizer);
}

#if !defined(__SANITIZE_THREAD__)  // which allows no new thread in a forked child
TEST(LimitsOfFork, HandlesMadeAfterItWork) {
  in_child([] {
    Solo solo("");
    solo.engine.add("w", {10}, Values(10, 1));
    solo.engine.commit();
    solo.engine.pass({{0, Values(10, 1)}});
    return solo.engine.step().outcome == OTR_STEP_APPLIED;
  });
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the address space
TEST_P(Limits, NoThreadToBeHad) {
  in_child([] {
    Solo solo(config_of(GetParam()), 500);
    solo.engine.add("w", {5000}, Values(5000, 1));
    const rlimit small{size_t{600} << 20, size_t{600} << 20};
    if (setrlimit(RLIMIT_AS, &small) != 0) return false;
    const bool commit = otr_engine_commit(solo.engine.get()) == OTR_E_OUT_OF_MEMORY;
    const bool named =
        std::string_view(otr_last_error_message()).find("thread") != std::string_view::npos;
    otr_optimizer* optimizer = nullptr;
    const bool alone = otr_optimizer_create(solo.context.get(), R"({"type": "AdamW"})",
                                            &optimizer) == OTR_E_OUT_OF_MEMORY;
    return commit && named && alone;
  });
}
#endif

TEST_P(Limits, AModelLargerThanAnyNumber) {
  Solo solo(config_of(GetParam()));
  int64_t shape[1] = {int64_t{1} << 55};
  otr_tensor huge;
  ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, shape, &huge));
  int64_t id = -1;
  EXPECT_OK(otr_engine_add_parameter(solo.engine.get(), "a", &huge, nullptr, &id));
  EXPECT_OK(otr_engine_add_parameter(solo.engine.get(), "b", &huge, nullptr, &id));
  EXPECT_FAILS(OTR_E_OUT_OF_MEMORY,
               otr_engine_add_parameter(solo.engine.get(), "c", &huge, nullptr, &id), "\"c\"",
               "2^56");
  EXPECT_FAILS(OTR_E_OUT_OF_MEMORY, otr_engine_commit(solo.engine.get()), "bytes");
}

// Each rank's part would fit, and its pages are touched late: the sum is what commit looks at.
TEST(LimitsOfMemory, AModelThatTheRanksTogetherCannotHold) {
  std::ifstream memory("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (memory >> word && word != "MemAvailable:") {
  }
  ASSERT_TRUE(memory >> kib);
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, "");  // stage 0: every rank has a copy
    int64_t shape[1] = {kib * 1024 / 4 * 6 / 10};
    otr_tensor large;
    ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, shape, &large));
    otr_param_options options = param_options();
    options.trainable = 0;
    int64_t id = -1;
    ASSERT_OK(otr_engine_add_parameter(engine.get(), "w", &large, &options, &id));
    EXPECT_FAILS(OTR_E_OUT_OF_MEMORY, otr_engine_commit(engine.get()), "2 ranks",
                 "published parameters", "free");
  });
}

TEST(LimitsOfShapes, EmptyWhateverTheOtherExtents) {
  for (Shape shape :
       {Shape{int64_t{1} << 57, 0, 5}, Shape{0, int64_t{1} << 57, int64_t{1} << 57}}) {
    Solo solo("");
    otr_tensor empty;
    ASSERT_OK(otr_tensor_init(nullptr, "float32", 3, shape.data(), &empty));
    int64_t id = -1;
    EXPECT_OK(otr_engine_add_parameter(solo.engine.get(), "w", &empty, nullptr, &id));
    solo.engine.commit();
  }
}

TEST(LimitsOfDeclarations, ContributionsOfAllNamesTogether) {
  Solo solo("");
  otr_param_options options = param_options();
  options.contributions = INT32_MAX;
  solo.engine.add("w", {2}, {1, 2}, &options);
  options.alias_of = 0;
  int64_t id = -1;
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_add_parameter(solo.engine.get(), "v", nullptr, &options, &id), "\"v\"",
               "contributions");
  solo.engine.commit();
}

TEST(LimitsOfDeclarations, AValueOfAllGroupsReachesLaterOnes) {
  Solo solo("");
  ASSERT_OK(otr_engine_set_group_value(solo.engine.get(), nullptr, "lr", 0.5));
  otr_param_options options = param_options();
  options.group = "late";
  solo.engine.add("w", {2}, {1, 2}, &options);
  double lr = 0;
  EXPECT_OK(otr_engine_get_group_value(solo.engine.get(), "late", "lr", &lr));
  EXPECT_EQ(lr, 0.5);
}

}  // namespace
