// SPDX-License-Identifier: Apache-2.0
// An engine's device over its life: chosen first, lost in any call, and not a forked child's.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "blocking.h"
#include "device_support.h"

namespace {

using namespace otr_test;

// ---- Chosen first ----

// What the configuration says is read anew for a device: a value set before would be gone.
TEST(DeviceLife, IsChosenBeforeHyperparametersAreSet) {
  for (const char* group : {static_cast<const char*>(nullptr), "default"}) {
    const auto context = device_context();
    const auto comm = make_self(context.get());
    Engine engine(comm.get(), on_stage(1));
    EXPECT_OK(otr_engine_set_group_value(engine.get(), group, "lr", 0.5));
    EXPECT_FAILS(OTR_E_STATE, otr_engine_set_device(engine.get(), kSimulated, 0), "hyperparameter",
                 "otr_engine_create");
    double lr = 0;
    EXPECT_OK(otr_engine_get_group_value(engine.get(), nullptr, "lr", &lr));
    EXPECT_EQ(lr, 0.5);
    engine.add("w", {4}, Values(4, 1));  // it goes on, on the CPU
    engine.commit();
    engine.pass({{0, Values(4, 1)}});
    EXPECT_EQ(engine.step().lr, 0.5);
  }
}

TEST(DeviceLife, SettingsAreNumbersThatThereAre) {
  const auto context = device_context();
  for (const char* name : {"copy_latency", "memory_bytes", "fail_allocation", "fail_operation"}) {
    for (const double value : {-1.0, 1e300, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      EXPECT_FAILS(OTR_E_ARGUMENT, otr_device_set_value(context.get(), kSimulated, 0, name, value),
                   name, "2^53");
    }
  }
}

// ---- Streams ----

// A kernel of the host reads the weights on a stream that only the release names; or on one that an
// acquire between otr_engine_reduce and the step names. The step waits for both.
TEST(DeviceLife, AStepWaitsForTheStreamsOfReleaseAndOfLateAcquires) {
  const otr_device_plugin& table = simulated_table();
  for (const char* extra : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
    for (const bool late : {false, true}) {
      for (const bool joint : {false, true}) {
        SCOPED_TRACE(std::string(late ? "late acquire" : "release") + (joint ? ", joint" : "") +
                     extra);
        DeviceSolo solo(on_stage(1, extra));
        const int64_t id = solo.engine.add("w", {4}, Values(4, 1));
        solo.engine.commit();
        const HostStream own;
        const auto& [device, stream, info] = own;
        solo.pass({{id, {1, 1, 1, 1}}});
        otr_tensor weight;
        if (late) {
          ASSERT_OK(otr_engine_reduce(solo.engine.get(), nullptr));
        }
        ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, late ? &info : nullptr, &weight));
        Tensor seen = Tensor::filled({4}, 0);
        const Locked locked(seen.get().data, 16);
        EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0.05));
        ASSERT_EQ(
            table.copy(device, seen.get().data, weight.data, 16, OTR_PLUGIN_DEVICE_TO_HOST, stream),
            OTR_OK);
        if (!late) {
          ASSERT_OK(otr_engine_release(solo.engine.get(), &id, 1, &info));
        }
        otr_engine* engine = solo.engine.get();
        EXPECT_OK(joint ? otr_step_many(&engine, 1, nullptr, nullptr)
                        : otr_engine_step(engine, nullptr));
        EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0));
        ASSERT_EQ(table.stream_synchronize(device, stream), OTR_OK);
        EXPECT_EQ(seen.values(), Values(4, 1)) << "the weights that were acquired";
        EXPECT_EQ(solo.engine.read(id), Values(4, 0.75));
      }
    }
  }
}

TEST(DeviceLife, AStreamThatThereIsNotIsRefusedWhereItIsNamed) {
  DeviceSolo solo(on_stage(1));
  const int64_t id = solo.engine.add("w", {4}, Values(4, 1));
  solo.engine.commit();
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  info.stream = 12345;
  otr_tensor weight;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_acquire(solo.engine.get(), &id, 1, &info, &weight),
               "12345");
  ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &weight));
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_release(solo.engine.get(), &id, 1, &info), "12345");
  otr_pass* pass = nullptr;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_begin(solo.engine.get(), nullptr, 0, &info, &pass),
               "12345");
  solo.pass({{id, Values(4, 1)}});
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED) << "nothing of it is left";
}

// ---- Lost ----

// The device is lost while nobody looks: whichever call notices poisons the engine.
TEST(DeviceLife, WhicheverCallNoticesTheLossPoisons) {
  struct Case {
    const char* name;
    std::function<int32_t(const DeviceSolo&, otr_pass*, const DeviceTensor&, const Tensor&)> call;
  };
  const std::vector<Case> cases{
      {"unscale", [](auto&, otr_pass* p, auto& t, auto&) { return otr_pass_unscale(p, &t, &t); }},
      {"get_slot",
       [](auto&, otr_pass* p, auto&, auto&) {
         otr_tensor slot;
         return otr_pass_get_slot(p, 0, &slot);
       }},
      {"add_grad",
       [](auto&, otr_pass* p, auto& t, auto&) { return otr_pass_add_grad(p, 0, &t, nullptr); }},
      {"pass_begin",
       [](auto& s, otr_pass*, auto& t, auto&) {
         otr_pass* pass = nullptr;
         return otr_pass_begin(s.engine.get(), &t, 1, nullptr, &pass);
       }},
      {"parameter_read",
       [](auto& s, otr_pass*, auto&, auto& here) {
         return otr_engine_parameter_read(s.engine.get(), 0, OTR_VALUE_MASTER, &here);
       }},
      {"local_read",
       [](auto& s, otr_pass*, auto&, auto& here) {
         return otr_engine_local_read(s.engine.get(), 0, OTR_VALUE_MASTER, &here);
       }},
      {"acquire", [](auto& s, otr_pass*, auto&, auto&) {
         const int64_t id = 0;
         otr_call_info info;
         EXPECT_OK(otr_call_info_init(&info, sizeof info));
         info.flags = OTR_ACQUIRE_FLOAT32;
         otr_tensor weight;
         return otr_engine_acquire(s.engine.get(), &id, 1, &info, &weight);
       }}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    // Where the accumulator is wider, a slot is memory that has to be had.
    DeviceSolo solo(
        on_stage(1, R"(}, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32")"));
    solo.engine.add("w", {4}, Values(4, 1));
    solo.engine.commit();
    const DeviceTensor there(solo.context.get(), simulated(), Tensor::filled({4}, 1));
    const Tensor here = Tensor::filled({4}, 0);
    const Owned<otr_pass> pass = solo.engine.begin();
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", 1));
    static_cast<void>(otr_tensor_copy(solo.context.get(), &here, &there));
    EXPECT_OK(otr_engine_check(solo.engine.get()));
    EXPECT_FAILS(OTR_E_DEVICE_FAULT, c.call(solo, pass.get(), there, here), "lost");
    EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_engine_check(solo.engine.get()), "lost");
    otr_pass* none = nullptr;
    EXPECT_FAILS(OTR_E_POISONED, otr_pass_begin(solo.engine.get(), nullptr, 0, nullptr, &none),
                 "lost");
  }
}

TEST(DeviceLife, AWriteThatNoticesTheLossPoisons) {
  for (const bool local : {false, true}) {
    DeviceSolo solo(on_stage(1));
    solo.engine.add("w", {4}, Values(4, 1));
    solo.engine.commit();
    const DeviceTensor there(solo.context.get(), simulated(), Tensor::filled({4}, 1));
    const Tensor here = Tensor::filled({4}, 0);
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", 1));
    static_cast<void>(otr_tensor_copy(solo.context.get(), &here, &there));
    EXPECT_FAILS(OTR_E_DEVICE_FAULT,
                 local ? otr_engine_local_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &there)
                       : otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &there),
                 "lost");
    EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_engine_check(solo.engine.get()), "lost");
  }
}

// ---- Not a forked child's ----

#if !defined(__SANITIZE_THREAD__)  // which allows no new thread in a forked child
TEST(DeviceLife, AForkedChildOpensItsOwn) {
  DeviceSolo solo(on_stage(1));
  const int64_t id = solo.engine.add("w", {4}, Values(4, 1));
  solo.engine.commit();
  const DeviceTensor mine(solo.context.get(), simulated(), Tensor::filled({4}, 3));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    void* data = nullptr;
    otr_tensor weight;
    EXPECT_FAILS(OTR_E_STATE, otr_device_allocate(solo.context.get(), kSimulated, 0, 8, &data),
                 "forked child");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &weight),
                 "forked child");
    {
      DeviceSolo own(on_stage(1));  // its device, whose memory is not the parent's
      const Tensor here = Tensor::filled({4}, 0);
      EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_copy(own.context.get(), &here, &mine), "allocation");
      own.engine.add("w", {4}, Values(4, 1));
      own.engine.commit();
      own.pass({{0, Values(4, 1)}});
      EXPECT_EQ(own.engine.step().outcome, OTR_STEP_APPLIED);
      EXPECT_EQ(own.engine.read(0), Values(4, 0.75));
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(values_there(solo.context.get(), *&mine), Values(4, 3)) << "the parent's is untouched";
  solo.pass({{id, Values(4, 1)}});
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
}
#endif

}  // namespace
