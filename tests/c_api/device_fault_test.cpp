// SPDX-License-Identifier: Apache-2.0
// What fails on a device: calls that are refused, memory that is not there, a device that is lost.
#include <sys/mman.h>

#include <barrier>
#include <map>
#include <mutex>
#include <string>

#include "device_support.h"

namespace {

using namespace otr_test;

// ---- A call that fails leaves no trace ----

TEST(DeviceEngine, ARefusedGradientIsNotCounted) {
  for (const char* order : {"boundary", "micro_step"}) {
    SCOPED_TRACE(order);
    DeviceSolo solo(R"({"outrigger": {"reduction_order": ")" + std::string(order) +
                    R"("}, "zero_optimization": {"stage": 2}})");
    const int64_t id = solo.engine.add("w", {4}, Values(4, 1));
    solo.engine.commit();
    solo.pass({{id, Values(4, 1000)}});  // what stays in the bucket's memory
    solo.engine.step();
    const DeviceTensor good(solo.context.get(), simulated(), Tensor::filled({4}, 1));
    otr_tensor wild = *&good;
    wild.data = static_cast<char*>(wild.data) + (1 << 30);
    otr_call_info info;
    ASSERT_OK(otr_call_info_init(&info, sizeof info));
    info.stream = 12345;
    const Owned<otr_pass> pass = solo.engine.begin();
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_add_grad(pass.get(), id, &wild, nullptr), "allocation");
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_add_grad(pass.get(), id, &good, &info), "12345");
    EXPECT_OK(otr_pass_add_grad(pass.get(), id, &good, nullptr));
    Engine::end(pass);
    otr_step_report report = OTR_STEP_REPORT_INIT;
    ASSERT_OK(otr_engine_reduce(solo.engine.get(), &report));
    EXPECT_EQ(solo.engine.read(id, OTR_VALUE_GRAD), Values(4, 1));
    EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
  }
}

// Acquired between otr_engine_reduce and the step: the step ends that, too.
TEST(DeviceEngine, AStepEndsWhatWasAcquiredAfterReduce) {
  for (const bool on_device : {false, true}) {
    const auto context = device_context();
    const auto comm = make_self(context.get());
    Engine engine(comm.get(), on_stage(3, R"(}, "bf16": {"enabled": true)"));
    if (on_device) {
      EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
    }
    const int64_t id = engine.add("w", {4}, Values(4, 1));
    engine.commit();
    const Owned<otr_pass> pass = engine.begin();
    const Tensor here = Tensor::filled({4}, 1);
    const DeviceTensor there(context.get(), simulated(), here);
    EXPECT_OK(otr_pass_add_grad(pass.get(), id, on_device ? &there : &here, nullptr));
    Engine::end(pass);
    otr_step_report report = OTR_STEP_REPORT_INIT;
    ASSERT_OK(otr_engine_reduce(engine.get(), &report));
    otr_call_info info;
    ASSERT_OK(otr_call_info_init(&info, sizeof info));
    info.flags = OTR_ACQUIRE_FLOAT32;
    otr_tensor weight;
    ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, &info, &weight));
    engine.step();
    EXPECT_FAILS(OTR_E_STATE, otr_engine_release(engine.get(), &id, 1, &info), "not acquired");
    ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, &info, &weight));
    EXPECT_EQ(values_there(context.get(), weight), Values(4, 0.75));
  }
}

// All or none: where memory ends at the second copy, the first is not acquired either.
TEST(DeviceEngine, AnAcquireThatFailsTakesNothing) {
  DeviceSolo solo(on_stage(1, R"(}, "bf16": {"enabled": true)"));
  const int64_t ids[] = {solo.engine.add("a", {4}, Values(4, 1)),
                         solo.engine.add("b", {4}, Values(4, 2))};
  solo.engine.commit();
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  info.flags = OTR_ACQUIRE_FLOAT32;
  EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_allocation", 2));
  otr_tensor weights[2];
  EXPECT_FAILS(OTR_E_OUT_OF_MEMORY,
               otr_engine_acquire(solo.engine.get(), ids, 2, &info, &weights[0]), "bytes");
  EXPECT_EQ(weights[0].data, nullptr);
  EXPECT_FAILS(OTR_E_STATE, otr_engine_release(solo.engine.get(), ids, 1, &info), "not acquired");
  ASSERT_OK(otr_engine_acquire(solo.engine.get(), ids, 2, &info, &weights[0]));
  EXPECT_EQ(values_there(solo.context.get(), weights[1]), Values(4, 2));
}

// All or nothing: an engine whose device fails in the joint update takes the others with it.
TEST(DeviceFaults, AJointStepPoisonsAll) {
  DeviceSolo solo(on_stage(0));
  const int64_t id = solo.engine.add("w", {4}, Values(4, 1));
  solo.engine.commit();
  Engine cpu(solo.comm.get(), on_stage(0));
  cpu.add("w", {4}, Values(4, 1));
  cpu.commit();
  solo.pass({{id, Values(4, 1)}});
  cpu.pass({{id, Values(4, 1)}});
  otr_step_report report = OTR_STEP_REPORT_INIT;
  ASSERT_OK(otr_engine_reduce(solo.engine.get(), &report));  // the next operation is the update
  EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", 1));
  otr_engine* engines[2] = {cpu.get(), solo.engine.get()};
  EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_step_many(engines, 2, nullptr, nullptr), "lost");
  EXPECT_FAILS(OTR_E_POISONED, otr_engine_step(cpu.get(), nullptr), "joint step", "engine 1");
}

TEST(DeviceFaults, TooLittleMemoryThereIsNamed) {
  DeviceSolo solo(on_stage(0));
  solo.engine.add("w", {1 << 16}, Values(1 << 16, 1));
  EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "memory_bytes", 1 << 18));
  EXPECT_FAILS(OTR_E_OUT_OF_MEMORY, otr_engine_commit(solo.engine.get()), "simulated device 0",
               "bytes");
}

// Of the weights after three steps.
Values trained(const DeviceSolo& solo, int64_t id) {
  for (int step = 1; step <= 3; ++step) {
    solo.pass({{id, dyadic(1 << 16, step)}});
    EXPECT_OK(otr_engine_step(solo.engine.get(), nullptr));
  }
  return solo.engine.read(id);
}

// Memory that is not page-locked serves as well; whoever requires it hears at commit, whichever
// piece is refused.
TEST(DeviceFaults, RefusedPagesAreAnErrorOrNone) {
  std::vector<char> probe(4 << 20);
  if (mlock(probe.data(), probe.size()) != 0) GTEST_SKIP() << "this process may not lock 4 MiB";
  const bool shows = locked_kib() > 0;  // under a sanitizer, mlock does nothing
  ASSERT_EQ(munlock(probe.data(), probe.size()), 0);
  ASSERT_EQ(locked_kib(), 0);
  std::vector<Values> results;
  for (const char* order : {"micro_step", "boundary"}) {
    for (const char* pin : {"off", "prefer", "require"}) {
      for (int nth = 0; nth <= 4; ++nth) {  // 0: none
        SCOPED_TRACE(std::string(order) + ", " + pin + ", " + std::to_string(nth));
        DeviceSolo solo(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2,
            "offload_optimizer": {"device": "cpu"}}, "outrigger": {"reduction_order": ")" +
                        std::string(order) + R"(", "host_memory": {"pin": ")" + pin + R"("}}})");
        const int64_t id = solo.engine.add("w", {1 << 16}, dyadic(1 << 16, 9));
        EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_pin", nth));
        const int32_t status = otr_engine_commit(solo.engine.get());
        const bool refused = status != OTR_OK;
        if (refused) {
          const std::string text = otr_last_error_message();
          EXPECT_EQ(status, OTR_E_OUT_OF_MEMORY) << text;
          for (const char* part : {"page-locked", "RLIMIT_MEMLOCK", "outrigger.host_memory.pin"}) {
            EXPECT_NE(text.find(part), std::string::npos) << text;
          }
        } else {
          EXPECT_EQ(locked_kib() > 0, shows && std::string(pin) != "off");
          std::string report(4096, ' ');
          size_t size = report.size();
          EXPECT_OK(otr_engine_host_memory(solo.engine.get(), report.data(), &size));
          const bool whole = std::string(pin) != "off" && (nth == 0 || nth > 2);
          EXPECT_EQ(report.find(R"("pinned_bytes":0,)") == std::string::npos,
                    std::string(pin) != "off")
              << report;
          EXPECT_EQ(report.find(R"("reason":null}})") != std::string::npos, whole) << report;
          results.push_back(trained(solo, id));
        }
        EXPECT_EQ(refused, std::string(pin) == "require" && (nth == 1 || nth == 2));
        EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_pin", 0));
      }
      EXPECT_EQ(locked_kib(), 0) << "all of it is given back";
    }
  }
  ASSERT_GE(results.size(), 20U);
  for (const Values& each : results) EXPECT_EQ(each, results[0]);
}

// Each operation of a whole window in turn is the one that the device loses: the call that notices
// says so, the engine is poisoned, nothing hangs and nothing crashes.
TEST(DeviceFaults, ALostDeviceEndsTheEngineCleanly) {
  for (const char* extra : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
    int noticed = 0;
    for (int operation = 1;; ++operation) {
      DeviceSolo solo(on_stage(2, extra));
      const int64_t id = solo.engine.add("w", {600}, Values(600, 1));
      solo.engine.commit();
      const DeviceTensor grad(solo.context.get(), simulated(), Tensor::filled({600}, 1));
      EXPECT_OK(
          otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", operation));
      int32_t status = OTR_OK;
      {
        const Owned<otr_pass> pass = solo.engine.begin();
        status = otr_pass_add_grad(pass.get(), id, &grad, nullptr);
        if (status == OTR_OK) status = otr_pass_end(pass.get());
      }
      otr_step_report report = OTR_STEP_REPORT_INIT;
      if (status == OTR_OK) status = otr_engine_step(solo.engine.get(), &report);
      if (status == OTR_OK) break;  // the window has fewer operations
      EXPECT_EQ(status, OTR_E_DEVICE_FAULT) << otr_last_error_message();
      EXPECT_NE(std::string(otr_last_error_message()).find("lost"), std::string::npos);
      EXPECT_FAILS(OTR_E_POISONED, otr_engine_step(solo.engine.get(), nullptr), "lost");
      ++noticed;
      ASSERT_LT(operation, 1000);
    }
    EXPECT_GE(noticed, 2);  // offloaded: a copy to the host, a copy back
  }
}

// A slot is out and another gradient waits for it: taking the slot back is work for the device.
TEST(DeviceFaults, TheEndOfAPassNoticesALostDevice) {
  for (const bool abandons : {false, true}) {
    DeviceSolo solo(R"({"outrigger": {"reduction_order": "boundary"}})");
    const int64_t id = solo.engine.add("w", {4}, Values(4, 1));
    solo.engine.commit();
    const DeviceTensor grad(solo.context.get(), simulated(), Tensor::filled({4}, 1));
    const Owned<otr_pass> pass = solo.engine.begin();
    otr_tensor slot;
    ASSERT_OK(otr_pass_get_slot(pass.get(), id, &slot));
    ASSERT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", 1));
    const Tensor here = Tensor::filled({4}, 0);
    EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_tensor_copy(solo.context.get(), &here, &grad), "lost");
    if (abandons) {
      EXPECT_OK(otr_pass_abandon(pass.get()));
    } else {
      EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_pass_end(pass.get()), "lost");
    }
    EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_engine_check(solo.engine.get()), "lost");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_step(solo.engine.get(), nullptr), "lost");
  }
}

// The rank whose device is lost tells the others, at once.
TEST(DeviceFaults, OtherRanksAreTold) {
  std::map<int32_t, int32_t> statuses;
  std::mutex mutex;
  std::barrier begun(2);  // else rank 0 could hear of it in its begin
  run_ranks(
      2,
      [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, on_stage(2));
        EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
        const int64_t id = engine.add("w", {600}, Values(600, 1));
        engine.commit();
        const auto context = device_context();
        int32_t status = OTR_OK;
        std::string text;
        {
          const DeviceTensor grad(context.get(), simulated(rank), Tensor::filled({600}, 1));
          const Owned<otr_pass> pass = engine.begin();
          begun.arrive_and_wait();
          if (rank == 1) {
            EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 1, "fail_operation", 1));
          }
          status = otr_pass_add_grad(pass.get(), id, &grad, nullptr);
          if (status == OTR_OK) status = otr_pass_end(pass.get());
          if (status == OTR_OK) status = otr_engine_step(engine.get(), nullptr);
          text = otr_last_error_message();
        }
        const std::lock_guard lock(mutex);
        statuses[rank] = status;
        EXPECT_NE(text.find("simulated device 1"), std::string::npos) << text;
      },
      20, "simulated");
  EXPECT_EQ(statuses[1], OTR_E_DEVICE_FAULT);
  EXPECT_EQ(statuses[0], OTR_E_ABORTED);
}

}  // namespace
