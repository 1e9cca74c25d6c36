// SPDX-License-Identifier: Apache-2.0
// An engine on a device: what a host sees of it, wrong use, faults. The bits are the matrix's
// business (tests/engine/matrix_test.cpp).
#include <cstdlib>
#include <cstring>

#include "device_support.h"

namespace {

using namespace otr_test;

// ---- Memory ----

TEST(DeviceMemory, CopiesThereAndBack) {
  const auto context = device_context();
  const Values values = dyadic(300, 1);
  const DeviceTensor first(context.get(), simulated(), Tensor({300}, values));
  const DeviceTensor second(context.get(), simulated(), Tensor::filled({300}, 0));
  EXPECT_OK(otr_tensor_copy(context.get(), &second, &first));
  EXPECT_EQ(values_there(context.get(), *&second), values);
  int32_t count = 0;
  EXPECT_OK(otr_device_count(context.get(), OTR_DEVICE_EXTENSION, &count));
  EXPECT_GT(count, 1);
  EXPECT_OK(otr_device_free(context.get(), kSimulated, 0, nullptr));
}

using DeviceMemoryDeathTest = testing::Test;
TEST(DeviceMemoryDeathTest, TheHostCannotReadIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto context = device_context();
        const DeviceTensor there(context.get(), simulated(), Tensor({2}, {1, 2}));
        float value = 0;
        std::memcpy(&value, (*&there).data, sizeof value);
        std::printf("%f", static_cast<double>(value));
      },
      "");
}

TEST(DeviceMemory, WrongUseIsNamed) {
  const auto plain = make_context();
  void* data = nullptr;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_device_allocate(plain.get(), kSimulated, 0, 8, &data),
               "type 12", "otr_context_load_plugin");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_context_load_plugin(plain.get(), "nowhere"), "\"nowhere\"",
               "OTR_PLUGIN_PATH", "liboutrigger_nowhere.so");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_context_load_plugin(plain.get(), "/no/such.so"), "/no/such.so");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_context_load_plugin(plain.get(), ""), "empty");
  const auto context = device_context();
  EXPECT_OK(otr_context_load_plugin(context.get(), "simulated"));  // again: nothing
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_device_allocate(context.get(), kSimulated, 99, 8, &data), "99");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_device_allocate(context.get(), kSimulated, 0, 0, &data),
               "bytes = 0");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_device_allocate(context.get(), OTR_DEVICE_CPU, 0, 8, &data),
               "OTR_DEVICE_CPU");
  EXPECT_EQ(data, nullptr);
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_device_set_value(context.get(), kSimulated, 0, "speed", 1),
               "\"speed\"", "copy_latency");
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_device_set_value(context.get(), kSimulated, 0, "copy_latency", -1),
               "copy_latency");
  const DeviceTensor there(context.get(), simulated(), Tensor({2}, {1, 2}));
  const Tensor longer = Tensor::filled({3}, 0);
  EXPECT_FAILS(OTR_E_SHAPE, otr_tensor_copy(context.get(), &longer, &there), "[2]", "[3]");
  const Tensor other = Tensor::filled({2}, 0, "bfloat16");
  EXPECT_FAILS(OTR_E_DTYPE, otr_tensor_copy(context.get(), &other, &there), "float32", "bfloat16");
  const Tensor strided({2, 2}, {1, 2, 3, 4}, "float32", {1, 2});
  const Tensor square = Tensor::filled({2, 2}, 0);
  EXPECT_FAILS(OTR_E_SHAPE, otr_tensor_copy(context.get(), &square, &strided), "row-major");
  otr_tensor wild = *&there;
  wild.data = static_cast<char*>(wild.data) + 4096;
  const Tensor here = Tensor::filled({2}, 0);
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_copy(context.get(), &here, &wild), "allocation");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_device_free(context.get(), kSimulated, 0, wild.data),
               "no live allocation");
}

// A file that only looks like a plugin, and one that is none.
TEST(DevicePlugins, AreFoundAndNamedWithTheirFaults) {
  size_t size = 0;
  ASSERT_OK(otr_machine_info(nullptr, &size));
  std::string text(size, '\0');
  ASSERT_OK(otr_machine_info(text.data(), &size));
  EXPECT_NE(text.find("liboutrigger_simulated.so"), std::string::npos);
  EXPECT_NE(text.find("\"devices\": 8"), std::string::npos);
  const auto context = make_context();
  const std::string own = std::string(std::getenv("OTR_PLUGIN_PATH")) + "/liboutrigger.so";
  EXPECT_FAILS(OTR_E_ABI, otr_context_load_plugin(context.get(), own.c_str()),
               "otr_device_plugin_table");
}

// ---- An engine there ----

TEST(DeviceEngine, TensorsAreThere) {
  DeviceSolo solo(on_stage(1));
  const int64_t id = solo.engine.add("w", {2, 3}, dyadic(6, 2));
  solo.engine.commit();
  otr_tensor weight;
  ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &weight));
  EXPECT_EQ(weight.device.device_type, OTR_DEVICE_EXTENSION);
  EXPECT_EQ(values_there(solo.context.get(), weight), dyadic(6, 2));
  const DeviceTensor output(solo.context.get(), simulated(), Tensor({}, {1}));
  otr_pass* pass = nullptr;
  ASSERT_OK(otr_pass_begin(solo.engine.get(), &output, 1, nullptr, &pass));
  const Owned<otr_pass> owned(pass);
  otr_tensor scaled, slot;
  ASSERT_OK(otr_pass_get_output_grad(pass, 0, &scaled));
  EXPECT_EQ(scaled.device.device_type, OTR_DEVICE_EXTENSION);
  EXPECT_EQ(values_there(solo.context.get(), scaled), Values{1});
  ASSERT_OK(otr_pass_get_slot(pass, id, &slot));
  EXPECT_EQ(slot.device.device_type, OTR_DEVICE_EXTENSION);
}

// A transposed gradient, an unscaled input gradient and a value read into a strided tensor there.
TEST(DeviceEngine, StridesThereAreFollowed) {
  DeviceSolo solo(on_stage(0));
  const int64_t id = solo.engine.add("w", {2, 3}, Values(6, 1));
  solo.engine.commit();
  const Owned<otr_pass> pass = solo.engine.begin();
  DeviceTensor grad(solo.context.get(), simulated(), Tensor({3, 2}, {1, 4, 2, 5, 3, 6}));
  otr_tensor transposed = grad.get();
  int64_t shape[2] = {2, 3}, strides[2] = {1, 2};
  transposed.shape = shape;
  transposed.strides = strides;
  ASSERT_OK(otr_pass_add_grad(pass.get(), id, &transposed, nullptr));
  DeviceTensor out(solo.context.get(), simulated(), Tensor::filled({3, 2}, 0));
  otr_tensor out_transposed = out.get();
  out_transposed.shape = shape;
  out_transposed.strides = strides;
  ASSERT_OK(otr_pass_unscale(pass.get(), &transposed, &out_transposed));
  EXPECT_EQ(values_there(solo.context.get(), out.get()), (Values{1, 4, 2, 5, 3, 6}));
  Engine::end(pass);
  otr_step_report report = OTR_STEP_REPORT_INIT;
  ASSERT_OK(otr_engine_reduce(solo.engine.get(), &report));
  EXPECT_EQ(solo.engine.read(id, OTR_VALUE_GRAD), (Values{1, 2, 3, 4, 5, 6}));
  ASSERT_OK(otr_engine_parameter_read(solo.engine.get(), id, OTR_VALUE_GRAD, &out_transposed));
  EXPECT_EQ(values_there(solo.context.get(), out.get()), (Values{1, 4, 2, 5, 3, 6}));
  ASSERT_OK(otr_engine_parameter_write(solo.engine.get(), id, OTR_VALUE_GRAD, &out_transposed));
  EXPECT_EQ(solo.engine.read(id, OTR_VALUE_GRAD), (Values{1, 2, 3, 4, 5, 6}));
}

TEST(DeviceEngine, WrongDevicesAreNamed) {
  DeviceSolo solo(on_stage(1));
  const int64_t id = solo.engine.add("w", {2}, {1, 2});
  EXPECT_FAILS(OTR_E_STATE, otr_engine_set_device(solo.engine.get(), kSimulated, 1),
               "declared already");
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_set_device(solo.engine.get(), kSimulated, 1), "committed");
  const Tensor here({2}, {1, 1});
  otr_pass* none = nullptr;
  EXPECT_FAILS(OTR_E_DEVICE, otr_pass_begin(solo.engine.get(), &here, 1, nullptr, &none),
               "output gradient 0", "type 1", "type 12");
  const Owned<otr_pass> pass = solo.engine.begin();
  EXPECT_FAILS(OTR_E_DEVICE, otr_pass_add_grad(pass.get(), id, &here, nullptr), "\"w\"");
  const DeviceTensor other(solo.context.get(), simulated(1), here);
  EXPECT_FAILS(OTR_E_DEVICE, otr_pass_add_grad(pass.get(), id, &other, nullptr), "device 1",
               "device 0");
  const DeviceTensor right(solo.context.get(), simulated(0), here);
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  info.stream = 12345;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_add_grad(pass.get(), id, &right, &info), "12345");
  Solo cpu("");
  const int64_t cpu_id = cpu.engine.add("w", {2}, {1, 2});
  cpu.engine.commit();
  const Owned<otr_pass> cpu_pass = cpu.engine.begin();
  EXPECT_FAILS(OTR_E_DEVICE, otr_pass_add_grad(cpu_pass.get(), cpu_id, &right, nullptr), "type 12",
               "CPU");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_set_device(Solo("").engine.get(), kSimulated, 0),
               "otr_context_load_plugin");
}

// One half of a split master is published, so the other one is to be there, too.
TEST(DeviceEngine, ASplitMasterIsNotOffloaded) {
  const std::string split =
      R"({"bf16": {"enabled": true}, "outrigger": {"states": {"master": {"format": "split"}}},
          "zero_optimization": {"stage": 1)";
  const std::string offloaded = split + R"(, "offload_optimizer": {"device": "cpu"}}})";
  Solo cpu(offloaded);  // legal on a CPU
  const auto context = device_context();
  const auto comm = make_self(context.get());
  const Engine engine(comm.get(), offloaded);
  EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_engine_set_device(engine.get(), kSimulated, 0), "split",
               "host memory", "offload_optimizer.device to \"none\"");
  EXPECT_OK(otr_engine_set_device(engine.get(), OTR_DEVICE_CPU, 0));  // still usable there
  const Engine there(comm.get(), split + "}}");
  EXPECT_OK(otr_engine_set_device(there.get(), kSimulated, 0));
}

// ---- Streams ----

// The host's own kernel, here a slow copy, fills the gradient on its stream; nobody waits but the
// engine. Then it overwrites the tensor on the same stream: the gradient was read before.
TEST(DeviceStreams, GradientsAreReadInTheStreamsOrder) {
  const otr_device_plugin& table = simulated_table();
  for (const char* extra : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
    for (const char* order : {"boundary", "micro_step"}) {
      SCOPED_TRACE(std::string(order) + extra);
      const auto context = device_context();
      const auto comm = make_self(context.get());
      const Engine engine(comm.get(), R"({"outrigger": {"reduction_order": ")" +
                                          std::string(order) +
                                          R"("}, "zero_optimization": {"stage": 1)" + extra + "}}");
      EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
      const int64_t id = const_cast<Engine&>(engine).add("w", {4}, Values(4, 1));
      EXPECT_OK(otr_engine_commit(engine.get()));
      const HostStream own;
      const auto& [device, stream, info] = own;
      EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 0, "copy_latency", 0.03));
      DeviceTensor grad(context.get(), simulated(), Tensor::filled({4}, 0));
      const Values expected{1, 2, 3, 4};
      const Tensor first({4}, expected), second = Tensor::filled({4}, 100);
      const Locked locked_first(first.get().data, 16);
      const Locked locked_second(second.get().data, 16);
      for (const bool by_slot : {false, true}) {
        otr_pass* pass = nullptr;
        ASSERT_OK(otr_pass_begin(engine.get(), nullptr, 0, &info, &pass));
        const Owned<otr_pass> owned(pass);
        otr_tensor target = grad.get();
        if (by_slot) {
          ASSERT_OK(otr_pass_get_slot(pass, id, &target));
        }
        ASSERT_EQ(table.copy(device, target.data, first.get().data, 16, OTR_PLUGIN_HOST_TO_DEVICE,
                             stream),
                  OTR_OK);
        ASSERT_OK(otr_pass_add_grad(pass, id, &target, &info));
        if (!by_slot) {
          ASSERT_EQ(table.copy(device, target.data, second.get().data, 16,
                               OTR_PLUGIN_HOST_TO_DEVICE, stream),
                    OTR_OK);
        }
        Engine::end(owned);
        otr_step_report report = OTR_STEP_REPORT_INIT;
        ASSERT_OK(otr_engine_reduce(engine.get(), &report));
        EXPECT_EQ(engine.read(id, OTR_VALUE_GRAD), expected) << (by_slot ? "slot" : "tensor");
        EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
      }
      EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 0, "copy_latency", 0));
      ASSERT_EQ(table.stream_synchronize(device, stream), OTR_OK);
    }
  }
}

// A window is given up and the engine destroyed while a copy to its host memory is on its way.
TEST(DeviceStreams, DestroyWaitsForCopies) {
  for (const char* order : {"boundary", "micro_step"}) {
    DeviceSolo solo(
        R"({"outrigger": {"reduction_order": ")" + std::string(order) +
        R"("}, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}})");
    const int64_t id = solo.engine.add("w", {1 << 18}, Values(1 << 18, 1));
    solo.engine.commit();
    const DeviceTensor grad(solo.context.get(), simulated(), Tensor::filled({1 << 18}, 1));
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0.1));
    {
      const Owned<otr_pass> pass = solo.engine.begin();
      EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
    }
    solo.engine.reset();
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0));
  }
}

// A kernel of the host still reads the weights when step is called: it sees the old ones.
TEST(DeviceStreams, AStepWaitsForWhoeverReadsTheWeights) {
  const otr_device_plugin& table = simulated_table();
  for (const char* extra : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
    DeviceSolo solo(on_stage(1, extra));
    const int64_t id = solo.engine.add("w", {4}, Values(4, 1));
    solo.engine.commit();
    const HostStream own;
    const auto& [device, stream, info] = own;
    otr_tensor weight;
    ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, &info, &weight));
    solo.pass({{id, {1, 1, 1, 1}}}, stream);
    Tensor seen = Tensor::filled({4}, 0);
    const Locked locked(seen.get().data, 16);
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0.05));
    ASSERT_EQ(
        table.copy(device, seen.get().data, weight.data, 16, OTR_PLUGIN_DEVICE_TO_HOST, stream),
        OTR_OK);
    solo.engine.step();
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0));
    ASSERT_EQ(table.stream_synchronize(device, stream), OTR_OK);
    EXPECT_EQ(seen.values(), Values(4, 1));
    EXPECT_EQ(solo.engine.read(id), Values(4, 0.75));
  }
}

// ---- Memory's accounts ----

TEST(DeviceEngine, LedgerIsTheEstimateInBothMemories) {
  for (const char* precision : {"float32", "bf16", "bf16_states"}) {
    for (int32_t stage = 1; stage <= 3; ++stage) {
      for (const char* order : {"boundary", "micro_step"}) {
        for (const bool offload : {false, true}) {
          for (int32_t world = 1; world <= 2; ++world) {
            const Kind kind{"", stage, precision, order};
            std::string config = config_of(kind);
            const std::string section = R"("stage": )" + std::to_string(stage);
            if (offload) {
              config.insert(config.find(section) + section.size(),
                            R"(, "offload_optimizer": {"device": "cpu"})");
            }
            SCOPED_TRACE(config);
            run_ranks(
                world,
                [&](int32_t rank, otr_comm* comm) {
                  Engine engine(comm, config);
                  ASSERT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
                  engine.add("a", {600}, Values(600, 1));
                  engine.add("b", {50}, Values(50, 1));
                  otr_estimate_options options;
                  ASSERT_OK(otr_estimate_options_init(&options, sizeof options));
                  options.world_size = world;
                  options.rank = rank;
                  size_t count = 0;
                  ASSERT_OK(otr_engine_estimate(engine.get(), &options, nullptr, &count));
                  std::vector<otr_memory_entry> before(count), after(count);
                  before[0].struct_size = after[0].struct_size = sizeof before[0];
                  ASSERT_OK(otr_engine_estimate(engine.get(), &options, before.data(), &count));
                  engine.commit();
                  ASSERT_OK(otr_engine_memory(engine.get(), after.data(), &count));
                  ASSERT_EQ(count, before.size());
                  EXPECT_EQ(count % 2, 0U);
                  EXPECT_EQ(before.back().device_type, OTR_DEVICE_EXTENSION);
                  for (size_t i = 0; i < count; ++i) {
                    EXPECT_EQ(before[i].resident_bytes, after[i].resident_bytes)
                        << before[i].purpose << " in memory " << before[i].device_type;
                    EXPECT_EQ(before[i].device_type, after[i].device_type);
                  }
                  const otr_memory_entry& there = after.back();
                  EXPECT_GT(there.resident_bytes, 0);
                  EXPECT_OK(otr_engine_finalize(engine.get()));
                },
                20, "simulated");
            ASSERT_FALSE(testing::Test::HasFailure());
          }
        }
      }
    }
  }
}

// ---- First values ----

// From the host's memory and the device's, with strides; masters there or offloaded.
TEST(DeviceInitialValues, AreThoseOfADeclarationWithThem) {
  for (const char* extra : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
    for (const int32_t stage : {1, 3}) {
      DeviceSolo given(on_stage(stage, extra)), later(on_stage(stage, extra));
      const Values values = dyadic(600, 3);
      given.engine.add("a", {20, 30}, values);
      given.engine.add("b", {600}, values);
      Shape shapes[2] = {{20, 30}, {600}};
      for (Shape& shape : shapes) {
        otr_tensor nothing;
        int64_t id = -1;
        ASSERT_OK(otr_tensor_init(nullptr, "float32", static_cast<int32_t>(shape.size()),
                                  shape.data(), &nothing));
        ASSERT_OK(otr_engine_add_parameter(later.engine.get(), shape.size() == 2 ? "a" : "b",
                                           &nothing, nullptr, &id));
      }
      given.engine.commit();
      later.engine.commit();
      const Tensor transposed({20, 30}, values, "float32", {1, 20});
      DeviceTensor there(later.context.get(), simulated(), Tensor({600}, values));
      const int64_t ids[2] = {0, 1};
      const otr_tensor tensors[2] = {transposed.get(), there.get()};
      EXPECT_OK(otr_engine_set_initial(later.engine.get(), ids, 2, tensors));
      EXPECT_EQ(later.engine.everything(), given.engine.everything());
      EXPECT_EQ(later.engine.read(0), values);
      for (const DeviceSolo* solo : {&given, &later}) {
        solo->pass({{0, dyadic(600, 1)}, {1, dyadic(600, 2)}});
        solo->engine.step();
      }
      EXPECT_EQ(later.engine.everything(), given.engine.everything());
    }
  }
}

}  // namespace
