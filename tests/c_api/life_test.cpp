// SPDX-License-Identifier: Apache-2.0
// An engine's life: the states, what each refuses, and destroying in any order.
#include <algorithm>
#include <array>

#include "support.h"

namespace {

using namespace otr_test;

// Every call that needs a committed engine.
std::vector<std::pair<const char*, std::function<int32_t()>>> committed_calls(otr_engine* engine) {
  static const int64_t id = 0;
  static Tensor value = Tensor::filled({2}, 1);
  static otr_tensor out;
  return {
      {"acquire", [=] { return otr_engine_acquire(engine, &id, 1, nullptr, &out); }},
      {"release", [=] { return otr_engine_release(engine, &id, 1, nullptr); }},
      {"prefetch", [=] { return otr_engine_prefetch(engine, &id, 1, nullptr); }},
      {"read", [=] { return otr_engine_parameter_read(engine, 0, OTR_VALUE_MASTER, &value); }},
      {"write", [=] { return otr_engine_parameter_write(engine, 0, OTR_VALUE_MASTER, &value); }},
      {"set_initial", [=] { return otr_engine_set_initial(engine, &id, 1, &value); }},
      {"pass_begin",
       [=] {
         otr_pass* pass = nullptr;
         const int32_t status = otr_pass_begin(engine, nullptr, 0, nullptr, &pass);
         EXPECT_EQ(pass, nullptr);
         return status;
       }},
      {"backward",
       [=] {
         return otr_engine_backward(
             engine, nullptr, 0, nullptr,
             [](otr_pass*, const otr_tensor*, int64_t, void*) {
               ADD_FAILURE() << "the callback was called";
               return 0;
             },
             nullptr);
       }},
      {"local_range",
       [=] {
         int64_t first = 0, count = 0;
         return otr_engine_local_range(engine, 0, &first, &count);
       }},
      {"local_read", [=] { return otr_engine_local_read(engine, 0, OTR_VALUE_MASTER, &value); }},
      {"local_write", [=] { return otr_engine_local_write(engine, 0, OTR_VALUE_MASTER, &value); }},
      {"reduce", [=] { return otr_engine_reduce(engine, nullptr); }},
      {"has_grad",
       [=] {
         int32_t has_grad = 0;
         return otr_engine_has_grad(engine, 0, &has_grad);
       }},
      {"discard", [=] { return otr_engine_discard(engine); }},
      {"get_progress",
       [=] {
         size_t size = 0;
         return otr_engine_get_progress(engine, nullptr, &size);
       }},
      {"set_progress", [=] { return otr_engine_set_progress(engine, "{}"); }},
      {"step_many",
       [=] {
         otr_engine* const engines[1] = {engine};
         return otr_step_many(engines, 1, nullptr, nullptr);
       }},
      {"step", [=] { return otr_engine_step(engine, nullptr); }},
      {"finalize", [=] { return otr_engine_finalize(engine); }},
  };
}

// Queries work in every state.
void expect_queries(otr_engine* engine, int64_t parameters) {
  int64_t count = -1;
  EXPECT_OK(otr_engine_parameter_count(engine, &count));
  EXPECT_EQ(count, parameters);
  EXPECT_OK(otr_engine_live_children(engine, &count));
  const char* name = nullptr;
  EXPECT_OK(otr_engine_parameter_name(engine, 0, &name));
  EXPECT_STREQ(name, "w");
  int64_t id = -1;
  EXPECT_OK(otr_engine_parameter_id(engine, "w", &id));
  EXPECT_EQ(id, 0);
  int32_t ndim = -1;
  const int64_t* shape = nullptr;
  EXPECT_OK(otr_engine_parameter_shape(engine, 0, &ndim, &shape));
  EXPECT_EQ(Shape(shape, shape + ndim), Shape{2});
  double lr = 0;
  EXPECT_OK(otr_engine_get_group_value(engine, nullptr, "lr", &lr));
  size_t size = 0;
  EXPECT_OK(otr_engine_config(engine, nullptr, &size));
  EXPECT_GT(size, 2U);
  size = 0;
  EXPECT_OK(otr_engine_memory(engine, nullptr, &size));
  EXPECT_GT(size, 1U);
  double scale = 0;
  EXPECT_OK(otr_engine_get_loss_scale(engine, &scale));
  EXPECT_EQ(scale, 1);
  int32_t boundary = -1;
  EXPECT_OK(otr_engine_get_boundary(engine, &boundary));
}

class Life : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Life, testing::ValuesIn(kKinds), name_of);

TEST_P(Life, BeforeCommit) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {2}, {1, 2});
  for (const auto& [name, call] : committed_calls(solo.engine.get())) {
    SCOPED_TRACE(name);
    EXPECT_FAILS(OTR_E_STATE, call(), "commit");
  }
  expect_queries(solo.engine.get(), 1);
  EXPECT_OK(otr_engine_check(solo.engine.get()));
  // None of it changed anything.
  solo.engine.commit();
  EXPECT_EQ(solo.engine.read(0), (Values{1, 2}));
}

TEST_P(Life, AfterCommit) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_commit(solo.engine.get()), "commit");
  const Tensor late = Tensor::filled({2}, 1);
  int64_t id = 7;
  EXPECT_FAILS(OTR_E_STATE,
               otr_engine_add_parameter(solo.engine.get(), "late", &late, nullptr, &id), "commit");
  EXPECT_EQ(id, 0);
  expect_queries(solo.engine.get(), 1);
  EXPECT_OK(otr_engine_check(solo.engine.get()));
  EXPECT_EQ(solo.engine.read(0), (Values{1, 2}));
}

TEST_P(Life, AfterFinalize) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  solo.engine.pass({{0, {1, 1}}});
  solo.engine.step();
  EXPECT_OK(otr_engine_finalize(solo.engine.get()));
  for (const auto& [name, call] : committed_calls(solo.engine.get())) {
    SCOPED_TRACE(name);
    EXPECT_FAILS(OTR_E_STATE, call(), "final");
  }
  EXPECT_FAILS(OTR_E_STATE, otr_engine_commit(solo.engine.get()), "final");
  int64_t id = 7;
  const Tensor late = Tensor::filled({2}, 1);
  EXPECT_FAILS(OTR_E_STATE,
               otr_engine_add_parameter(solo.engine.get(), "late", &late, nullptr, &id), "final");
  expect_queries(solo.engine.get(), 1);
  EXPECT_OK(otr_engine_check(solo.engine.get()));
}

TEST_P(Life, WhileAPassIsOpen) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  const auto pass = solo.engine.begin();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_step(solo.engine.get(), nullptr), "pass");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_finalize(solo.engine.get()), "pass");
  const Tensor value = Tensor::filled({2}, 9);
  EXPECT_FAILS(OTR_E_STATE,
               otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &value), "step");
  EXPECT_EQ(solo.engine.read(0), (Values{1, 2}));
  // The pass is as it was.
  Engine::add(pass, 0, {2}, {1, 1});
  Engine::end(pass);
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
}

TEST_P(Life, AfterAPassHasEnded) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  const auto pass = solo.engine.begin();
  Engine::end(pass);
  const Tensor grad = Tensor::filled({2}, 1);
  otr_tensor slot;
  EXPECT_FAILS(OTR_E_STATE, otr_pass_add_grad(pass.get(), 0, &grad, nullptr), "ended");
  EXPECT_FAILS(OTR_E_STATE, otr_pass_get_slot(pass.get(), 0, &slot), "ended");
  EXPECT_FAILS(OTR_E_STATE, otr_pass_end(pass.get()), "ended");
  double scale = 0;
  EXPECT_OK(otr_pass_get_scale(pass.get(), &scale));
}

TEST_P(Life, AStepNeedsAPass) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_step(solo.engine.get(), nullptr), "pass");
  solo.engine.pass({{0, {1, 1}}});
  solo.engine.step();
  const auto before = solo.engine.everything();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_step(solo.engine.get(), nullptr), "pass");
  EXPECT_EQ(solo.engine.everything(), before);
}

TEST_P(Life, EndsWithoutFinalizeAtAnyMoment) {
  for (int moment = 0; moment < 6; ++moment) {
    Solo solo(config_of(GetParam()));
    const int64_t id = solo.engine.add("w", {2000}, dyadic(2000, 1));
    Owned<otr_pass> pass;
    if (moment >= 1) solo.engine.commit();
    if (moment >= 2) pass = solo.engine.begin();
    if (moment >= 3) Engine::add(pass, id, {2000}, dyadic(2000, 2));
    if (moment >= 4) Engine::end(pass);
    if (moment >= 5) solo.engine.step();
    solo.engine.reset();  // before the pass, the comm and the context
  }
}

TEST_P(Life, CountsItsLiveChildren) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  const auto live = [&] {
    int64_t count = -1;
    EXPECT_OK(otr_engine_live_children(solo.engine.get(), &count));
    return count;
  };
  EXPECT_EQ(live(), 0);
  auto first = solo.engine.begin();
  EXPECT_EQ(live(), 1);
  Engine::end(first);
  EXPECT_EQ(live(), 1) << "ended, not destroyed";
  solo.engine.step();
  auto second = solo.engine.begin();
  EXPECT_EQ(live(), 2);
  first.reset();
  EXPECT_EQ(live(), 1);
  second.reset();
  EXPECT_EQ(live(), 0);
  // A begin that failed left nothing.
  otr_tensor bad = {};
  bad.device.device_type = 55;
  otr_pass* pass = nullptr;
  EXPECT_FAILS(OTR_E_DEVICE, otr_pass_begin(solo.engine.get(), &bad, 1, nullptr, &pass), "55");
  EXPECT_EQ(live(), 0);
  Engine::end(solo.engine.begin());
}

TEST_P(Life, DestroysInAnyOrder) {
  std::array<int, 4> order{0, 1, 2, 3};
  do {
    for (const bool ended : {false, true}) {
      Solo solo(config_of(GetParam()));
      solo.engine.add("w", {2}, {1, 2});
      solo.engine.commit();
      const Tensor output({2}, {3, 4});
      otr_pass* opened = nullptr;
      ASSERT_OK(otr_pass_begin(solo.engine.get(), &output, 1, nullptr, &opened));
      Owned<otr_pass> pass(opened);
      if (ended) Engine::end(pass);
      for (const int which : order) {
        if (which == 0) solo.context.reset();
        if (which == 1) solo.comm.reset();
        if (which == 2) solo.engine.reset();
        if (which == 3) pass.reset();
        if (pass) {  // its parents' handles are gone or not: it works
          otr_tensor grad;
          EXPECT_OK(otr_pass_get_output_grad(pass.get(), 0, &grad));
          EXPECT_EQ(values_of(grad), (Values{3, 4}));
          if (!ended) Engine::add(pass, 0, {2}, {1, 1});
        }
        if (solo.engine.get() != nullptr) {
          EXPECT_EQ(solo.engine.read(0), (Values{1, 2}));
        }
        if (solo.comm) {
          EXPECT_OK(otr_comm_barrier(solo.comm.get()));
        }
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(LifeOfEngines, EngineWithoutParameters) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind));
    solo.engine.commit();
    solo.engine.pass({});
    const auto report = solo.engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(report.grad_norm, 0);
    EXPECT_EQ(report.updates, 0);
    EXPECT_OK(otr_engine_finalize(solo.engine.get()));
  }
}

TEST(LifeOfEngines, SeveralEnginesOnOneCommunicator) {
  const auto context = make_context();
  const auto comm = make_self(context.get());
  Engine a(comm.get(), config_of(kKinds[0])), b(comm.get(), config_of(kKinds[3]));
  a.add("w", {2}, {1, 2});
  b.add("w", {2}, {3, 4});
  b.commit();
  a.commit();
  const auto pass_a = a.begin();
  const auto pass_b = b.begin();
  Engine::add(pass_a, 0, {2}, {1, 1});
  Engine::end(pass_b);
  Engine::end(pass_a);
  EXPECT_EQ(b.step().outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(a.step().outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(b.read(0), (Values{3, 4}));
  EXPECT_NE(a.read(0), (Values{1, 2}));
  a.reset();
  EXPECT_EQ(b.read(0), (Values{3, 4}));
}

TEST(EngineCreate, RefusesBadConfigurations) {
  const auto context = make_context();
  const auto comm = make_self(context.get());
  otr_engine* engine = nullptr;
  EXPECT_FAILS(OTR_E_CONFIG, otr_engine_create(comm.get(), "{", &engine), "line 1");
  EXPECT_FAILS(OTR_E_CONFIG, otr_engine_create(comm.get(), "{\n\"gradient_cliping\": 1}", &engine),
               "line 2", "gradient_cliping", "gradient_clipping");
  EXPECT_FAILS(OTR_E_CONFIG,
               otr_engine_create(comm.get(), "{\"gradient_clipping\": \"1\"}", &engine),
               "gradient_clipping");
  EXPECT_FAILS(OTR_E_UNSUPPORTED,
               otr_engine_create(comm.get(),
                                 R"({"zero_optimization": {"stage": 3,
                                     "offload_param": {"device": "nvme", "nvme_path": "/n"}}})",
                                 &engine),
               "offload_param");
  EXPECT_EQ(engine, nullptr);
  for (const char* text : {"", "{}", static_cast<const char*>(nullptr)}) {
    EXPECT_OK(otr_engine_create(comm.get(), text, &engine));
    otr_engine_destroy(engine);
  }
}

}  // namespace
