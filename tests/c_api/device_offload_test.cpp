// SPDX-License-Identifier: Apache-2.0
// States on the host, parameters on a device: what a step costs there, that its bits depend on
// nothing of it, and what becomes of every failure on the way.
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device_support.h"

namespace {

using namespace otr_test;

struct Cost {
  double allocations, synchronizations, unpinned, kernels;
};

Cost cost_of(otr_context* context, int32_t device) {
  const auto value = [&](const char* name) {
    double number = -1;
    EXPECT_OK(otr_device_get_value(context, kSimulated, device, name, &number));
    return number;
  };
  return {value("allocations"), value("synchronizations"), value("unpinned_bytes"),
          value("kernels")};
}

constexpr int64_t kSide = 700;  // more than one part of an update, and no multiple of a leaf

// ratio: the part of it, of parameters of one size.
std::string offloaded(int32_t stage, const char* precision, const char* ratio = "1") {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, )" + std::string(precision) +
         R"("gradient_clipping": 0.5, "zero_optimization": {"stage": )" + std::to_string(stage) +
         R"(, "reduce_bucket_size": 500000, "offload_optimizer": {"device": "cpu", "ratio": )" +
         ratio + "}}}";
}

constexpr const char* kFloat32 = "";
constexpr const char* kBf16 = R"("bf16": {"enabled": true}, )";
constexpr const char* kBf16States =
    R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}, )";

// Once everything is there, backward and step neither wait for the device, but for gradients, nor
// copy pages that are not locked; nor do they allocate what a driver waits for, unless another rank
// is late.
void expect_no_waits(Engine& engine, otr_context* context, int32_t device, bool alone) {
  EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, device));
  std::vector<int64_t> ids;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    ids.push_back(engine.add(name, {kSide, kSide}, dyadic(kSide * kSide, 1)));
  }
  engine.commit();
  const DeviceTensor grad(context, simulated(device),
                          Tensor({kSide, kSide}, dyadic(kSide * kSide, 2 + device)));
  const DeviceTensor seed(context, simulated(device), Tensor({}, {1}));
  const auto train = [&] {
    otr_pass* pass = nullptr;
    for (const int64_t id : ids) {  // a forward, in which the host waits for nothing
      otr_tensor weight;
      ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
      ASSERT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
    }
    ASSERT_OK(otr_pass_begin(engine.get(), &seed, 1, nullptr, &pass));
    const Owned<otr_pass> owned(pass);
    for (size_t i = ids.size(); i-- > 0;) {
      const int64_t id = ids[i];
      otr_tensor weight;
      ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
      otr_tensor slot = *&grad;
      if (id % 2 == 1) {
        ASSERT_OK(otr_pass_get_slot(pass, id, &slot));
      }
      // The host is ahead of its device, by more buckets than there are buffers.
      ASSERT_OK(otr_device_set_value(context, kSimulated, device, "delay", 0.002));
      ASSERT_OK(otr_pass_add_grad(pass, id, &slot, nullptr));
      ASSERT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
    }
    Engine::end(owned);
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  };
  train();
  const Cost before = cost_of(context, device);
  for (int i = 0; i < 3; ++i) train();
  const Cost after = cost_of(context, device);
  if (alone) {
    EXPECT_EQ(after.allocations, before.allocations);
  }
  EXPECT_EQ(after.synchronizations, before.synchronizations);
  EXPECT_EQ(after.unpinned, before.unpinned);
  EXPECT_GT(after.kernels, before.kernels);
}

TEST(DeviceOffload, AStepWaitsForNothingButGradientsAndOtherRanks) {
  for (const int32_t stage : {2, 3}) {
    for (const char* precision : {kFloat32, kBf16, kBf16States}) {
      for (const char* ratio : {"1", "0.6"}) {
        SCOPED_TRACE(std::to_string(stage) + " " + precision + " " + ratio);
        const auto context = device_context();
        for (const int32_t world : {1, 2}) {
          run_ranks(context.get(), world, [&](int32_t rank, otr_comm* comm) {
            Engine engine(comm, offloaded(stage, precision, ratio));
            expect_no_waits(engine, context.get(), rank, world == 1);
          });
        }
      }
    }
  }
}

// A step has ended on the host, its weights are still on their way: whoever acquires them sees the
// new ones in the order of its stream, and the next step's masters are not yet written over them.
TEST(DeviceOffload, AcquiredWeightsAreNewInTheOrderOfTheStream) {
  const otr_device_plugin& table = simulated_table();
  for (const char* precision : {kFloat32, kBf16, kBf16States}) {
    SCOPED_TRACE(precision);
    DeviceSolo solo(offloaded(2, precision));
    constexpr int64_t kCount = 1000;
    const int64_t id = solo.engine.add("w", {kCount}, Values(kCount, 1));
    solo.engine.commit();
    const HostStream own;
    const auto& [device, stream, info] = own;
    Values previous(kCount, 1);
    for (int step = 0; step < 3; ++step) {
      solo.pass({{id, Values(kCount, 1)}}, stream);
      EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0.02));
      EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
      otr_tensor weight;
      ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, &info, &weight));
      const bool is_float32 = weight.dtype.bits == 32;
      Tensor seen = Tensor::filled({kCount}, 0, is_float32 ? "float32" : "bfloat16");
      const size_t bytes = static_cast<size_t>(kCount) * (is_float32 ? 4 : 2);
      const Locked locked(seen.get().data, bytes);
      ASSERT_EQ(table.copy(device, seen.get().data, weight.data, bytes, OTR_PLUGIN_DEVICE_TO_HOST,
                           stream),
                OTR_OK);
      ASSERT_EQ(table.stream_synchronize(device, stream), OTR_OK);
      EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_latency", 0));
      EXPECT_EQ(seen.values(), solo.engine.read(id, OTR_VALUE_PUBLISHED));
      EXPECT_LT(seen.values()[0], previous[0]);
      previous = seen.values();
      ASSERT_OK(otr_engine_release(solo.engine.get(), &id, 1, &info));
    }
  }
}

// At stage 3 ranks gather from their masters on the host: an acquire, at once or ahead of it,
// brings nothing down, and shows what each owner has published on its device.
// ratio: at 0.125 the last parameter is offloaded.
void expect_gathers(const char* precision, const char* ratio) {
  constexpr int64_t kCount = kSide * kSide;
  const auto context = device_context();
  std::array<double, 2> came{};
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, offloaded(3, precision, ratio));
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
    // Of the large one, rank 0 has more than a place in the memory by which pieces go.
    const std::vector<int64_t> counts{kCount, 3, 70000};
    std::vector<int64_t> ids;
    for (const int64_t count : counts) {
      ids.push_back(engine.add(("w" + std::to_string(count)).c_str(), {count}, dyadic(count, 5)));
    }
    engine.commit();
    const auto down = [&] {
      double bytes = -1;
      EXPECT_OK(otr_device_get_value(context.get(), kSimulated, rank, "bytes_to_host", &bytes));
      return bytes;
    };
    for (int step = 0; step < 3; ++step) {
      const Owned<otr_pass> pass = engine.begin();
      for (size_t i = ids.size(); i-- > 0;) {
        const DeviceTensor grad(context.get(), simulated(rank),
                                Tensor({counts[i]}, dyadic(counts[i], 7 * step + rank)));
        EXPECT_OK(otr_pass_add_grad(pass.get(), ids[i], &grad, nullptr));
      }
      Engine::end(pass);
      EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
      const double before = down();
      if (step == 1) {
        EXPECT_OK(otr_engine_prefetch(engine.get(), ids.data(), 3, nullptr));
      }
      std::vector<otr_tensor> weights(ids.size());
      ASSERT_OK(otr_engine_acquire(engine.get(), ids.data(), 3, nullptr, weights.data()));
      came.at(static_cast<size_t>(rank)) += down() - before;
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool is_float32 = weights[i].dtype.bits == 32;
        const Tensor seen = Tensor::filled({counts[i]}, 0, is_float32 ? "float32" : "bfloat16");
        ASSERT_OK(otr_tensor_copy(context.get(), &seen, &weights[i]));
        EXPECT_EQ(seen.values(), engine.read(ids[i], OTR_VALUE_PUBLISHED));
        EXPECT_NE(seen.values(), dyadic(counts[i], 5));
      }
      ASSERT_OK(otr_engine_release(engine.get(), ids.data(), 3, nullptr));
    }
  });
  const int64_t kept = std::string_view(ratio) == "1" ? 0 : kCount + 3;
  EXPECT_EQ(came[0] + came[1],
            3.0 * static_cast<double>(kept) * (std::string_view(precision).empty() ? 4 : 2));
}

// What the host has a master of; what stays on the device comes down once.
TEST(DeviceOffload, AGatherBringsDownWhatTheHostHasNoMasterOf) {
  for (const char* precision : {kFloat32, kBf16, kBf16States}) {
    for (const char* ratio : {"1", "0.125"}) {
      SCOPED_TRACE(std::string(precision) + " " + ratio);
      expect_gathers(precision, ratio);
    }
  }
}

// What was fetched ahead and never acquired is copied from this rank's own part, which the step
// changes: on the device as under offload, the simulated one sees to it that they are in order.
TEST(DeviceOffload, AStepComesAfterAGatherThatNobodyTook) {
  const auto context = device_context();
  for (const char* where : {"none", "cpu"}) {
    run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
      const std::string config =
          R"({"optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3,
              "offload_optimizer": {"device": ")" +
          std::string(where) + R"("}}})";
      Engine engine(comm, config);
      EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
      const int64_t id = engine.add("w", {3000}, dyadic(3000, 1));
      engine.commit();
      const DeviceTensor grad(context.get(), simulated(rank), Tensor({3000}, dyadic(3000, rank)));
      for (int step = 0; step < 3; ++step) {
        EXPECT_OK(otr_engine_prefetch(engine.get(), &id, 1, nullptr));
        const Owned<otr_pass> pass = engine.begin();
        EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
        Engine::end(pass);
        EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
      }
      EXPECT_NE(engine.read(id, OTR_VALUE_PUBLISHED), dyadic(3000, 1));
    });
  }
}

// ---- Bits ----

// Twenty steps of three parameters, with gradients of every step's own; the last one comes twice in
// each pass.
std::vector<Values> trained(const Engine& engine, otr_context* there) {
  constexpr int64_t kCounts[] = {3000, 257, 40000};
  std::vector<int64_t> ids;
  for (const int64_t count : kCounts) {
    ids.push_back(const_cast<Engine&>(engine).add(("w" + std::to_string(count)).c_str(), {count},
                                                  dyadic(count, 3)));
  }
  EXPECT_OK(otr_engine_commit(engine.get()));
  for (int step = 0; step < 20; ++step) {
    const Owned<otr_pass> pass = engine.begin();
    for (size_t i = ids.size(); i-- > 0;) {
      const Tensor here({kCounts[i]}, dyadic(kCounts[i], 10 * step + static_cast<int>(i)));
      for (size_t times = 0; times < (i == 2 ? 2 : 1); ++times) {
        if (there == nullptr) {
          EXPECT_OK(otr_pass_add_grad(pass.get(), ids[i], &here, nullptr));
        } else {
          const DeviceTensor grad(there, simulated(), here);
          EXPECT_OK(otr_pass_add_grad(pass.get(), ids[i], &grad, nullptr));
        }
      }
    }
    Engine::end(pass);
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  }
  return engine.everything();
}

// On or off, whatever the ring's depth and the buckets' size: the values after 20 steps are those
// of an engine on the CPU.
TEST(DeviceOffload, BitsDependNeitherOnOffloadNorOnTheRing) {
  for (const char* precision : {kFloat32, kBf16, kBf16States}) {
    const auto config = [&](bool offload, int ring, int bucket) {
      return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}, )" +
             std::string(precision) +
             R"("gradient_clipping": 0.5, "zero_optimization": {"stage": 2, "reduce_bucket_size": )" +
             std::to_string(bucket) +
             (offload ? R"(, "offload_optimizer": {"device": "cpu"}})" : "}") +
             R"(, "outrigger": {"bucket_buffers": )" + std::to_string(ring) + "}}";
    };
    const auto context = device_context();
    const auto comm = make_self(context.get());
    const bool needs_offload = precision == kBf16States;
    const Engine cpu(comm.get(), config(needs_offload, 4, 4096));
    const std::vector<Values> expected = trained(cpu, nullptr);
    for (const bool offload : {false, true}) {
      if (needs_offload && !offload) continue;
      for (const int ring : {1, 2, 4, 7}) {
        for (const int bucket : {512, 4096, 1 << 20}) {
          SCOPED_TRACE(std::string(precision) + (offload ? " offload " : " ") +
                       std::to_string(ring) + " " + std::to_string(bucket));
          const Engine engine(comm.get(), config(offload, ring, bucket));
          EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
          EXPECT_EQ(trained(engine, context.get()), expected);
        }
      }
    }
  }
}

// ---- Memory ----

// A master in bfloat16: 2 bytes each of master, gradient and two moments, and nothing else that
// grows with the model but the weights on the device.
TEST(DeviceOffload, ABfloat16MasterTakesEightBytesAParameter) {
  for (const int32_t stage : {2, 3}) {
    DeviceSolo solo(offloaded(stage, kBf16States));
    constexpr int64_t kElements = int64_t{1} << 24;
    Shape shape{kElements};
    otr_tensor nothing;
    int64_t id = 0;
    EXPECT_OK(otr_tensor_init(nullptr, "float32", 1, shape.data(), &nothing));
    EXPECT_OK(otr_engine_add_parameter(solo.engine.get(), "w", &nothing, nullptr, &id));
    solo.engine.commit();
    std::vector<otr_memory_entry> entries(64);
    entries[0].struct_size = sizeof entries[0];
    size_t count = entries.size();
    EXPECT_OK(otr_engine_memory(solo.engine.get(), entries.data(), &count));
    int64_t host = 0, buckets = 0;
    for (size_t i = 0; i < count; ++i) {
      if (entries[i].device_type != OTR_DEVICE_CPU) continue;
      const std::string purpose = entries[i].purpose;
      if (purpose == "gradient buckets") buckets = entries[i].resident_bytes;
      if (purpose == "total") host = entries[i].resident_bytes;
    }
    EXPECT_GT(buckets, 0);
    EXPECT_EQ(host - buckets, 8 * kElements);
  }
}

// ---- Failures ----

// A whole life of an engine, in which the n-th of something fails. The first status that is not OK;
// a call that lacked memory is made once more, and has to succeed.
int32_t live(const std::string& config, const char* what, int nth, bool* struck) {
  const auto context = device_context();
  const auto comm = make_self(context.get());
  Engine engine(comm.get(), config);
  EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
  std::vector<int64_t> ids;
  for (const char* name : {"a", "b", "c"}) ids.push_back(engine.add(name, {900}, dyadic(900, 4)));
  const DeviceTensor grad(context.get(), simulated(), Tensor({900}, dyadic(900, 5)));
  const DeviceTensor seed(context.get(), simulated(), Tensor({}, {1}));
  EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 0, what, nth));
  int32_t first = OTR_OK;
  const auto call = [&](const std::function<int32_t()>& body) {
    int32_t status = body();
    if (status != OTR_OK && first == OTR_OK) first = status;
    if (status == OTR_E_OUT_OF_MEMORY) status = body();
    return status == OTR_OK;
  };
  if (call([&] { return otr_engine_commit(engine.get()); })) {
    bool goes_on = true;
    for (int step = 0; step < 2 && goes_on; ++step) {
      otr_pass* pass = nullptr;
      goes_on = call([&] { return otr_pass_begin(engine.get(), &seed, 1, nullptr, &pass); });
      const Owned<otr_pass> owned(pass);
      for (size_t i = 0; i < ids.size() && goes_on; ++i) {
        const int64_t id = ids[i];
        otr_tensor weight, slot = *&grad;
        goes_on = call([&] { return otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight); });
        if (i == 0) goes_on = goes_on && call([&] { return otr_pass_get_slot(pass, id, &slot); });
        goes_on = goes_on && call([&] { return otr_pass_add_grad(pass, id, &slot, nullptr); });
      }
      goes_on = goes_on && call([&] { return otr_pass_end(pass); });
      goes_on = goes_on && call([&] { return otr_engine_step(engine.get(), nullptr); });
    }
    if (goes_on) call([&] { return otr_engine_finalize(engine.get()); });
  }
  double left = 0;
  EXPECT_OK(otr_device_get_value(context.get(), kSimulated, 0, what, &left));
  *struck = left == 0;
  EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 0, what, 0));
  return first;
}

TEST(DeviceOffload, EveryFailureIsAnErrorAndNothingLeaks) {
  const otr_device_plugin& table = simulated_table();
  otr_plugin_device* device = nullptr;
  for (const int32_t stage : {1, 2, 3}) {
    for (const char* precision : {kFloat32, kBf16, kBf16States}) {
      for (const char* what : {"fail_allocation", "fail_operation", "fail_pin"}) {
        const char* const ratio = stage == 2 ? "0.6" : "1";
        int failures = 0;
        bool struck = true;
        for (int nth = 1; struck; ++nth) {
          SCOPED_TRACE(std::to_string(stage) + " " + precision + what + " " + std::to_string(nth));
          const int64_t locked = locked_kib();
          const int32_t status = live(offloaded(stage, precision, ratio), what, nth, &struck);
          const bool is_loss = std::string(what) == "fail_operation";
          EXPECT_TRUE(status == OTR_OK ||
                      status == (is_loss ? OTR_E_DEVICE_FAULT : OTR_E_OUT_OF_MEMORY))
              << status;
          failures += status != OTR_OK ? 1 : 0;
          EXPECT_EQ(locked_kib(), locked);
          uint64_t free_bytes = 0, total = 0;
          ASSERT_EQ(table.open(0, &device), OTR_OK);
          EXPECT_EQ(table.memory_info(device, &free_bytes, &total), OTR_OK);
          table.close(device);
          EXPECT_EQ(free_bytes, total);
          ASSERT_LT(nth, 1000);
        }
        if (std::string(what) != "fail_pin") {
          EXPECT_GE(failures, 3) << what;
        }
      }
    }
  }
}

}  // namespace
