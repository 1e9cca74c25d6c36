// SPDX-License-Identifier: Apache-2.0
// States that leave the device between two steps and come back: their bits, where they are
// meanwhile, what works then, and what becomes of failures.
#include <atomic>
#include <map>
#include <string>

#include "checkpoints.h"
#include "device_support.h"

namespace {

using namespace otr_test;

const std::vector<Shape> kWeights{{30, 50}, {257}, {3000}};
constexpr int32_t kEverything =
    OTR_STATES_PUBLISHED | OTR_STATES_MASTER | OTR_STATES_MOMENTS | OTR_STATES_GRADIENTS;

struct Where {
  int32_t stage = 2, world = 1;
  std::string order = "micro_step", offload = "";
  bool on_device = true;
  std::string own = "";  // members of "outrigger"
};

std::string config_there(const Where& w) {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
             "bf16": {"enabled": true}, "gradient_clipping": 0.5,
             "zero_optimization": {"stage": )" +
         std::to_string(w.stage) + R"(, "reduce_bucket_size": 2048)" + w.offload +
         R"(}, "outrigger": {"reduction_order": ")" + w.order + "\"" + w.own + "}}";
}

void declare_there(Engine& engine, const Where& w, int32_t rank) {
  if (w.on_device) {
    ASSERT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
  }
  for (size_t i = 0; i < kWeights.size(); ++i) {
    engine.add(("w" + std::to_string(i)).c_str(), kWeights[i],
               dyadic(count_of(kWeights[i]), static_cast<int64_t>(i)));
  }
  engine.commit();
}

void step_there(const Engine& engine, otr_context* context, const Where& w, int32_t rank,
                int number) {
  const Owned<otr_pass> pass = engine.begin();
  for (size_t i = kWeights.size(); i-- > 0;) {
    const Tensor here(kWeights[i],
                      dyadic(count_of(kWeights[i]), 50 * number + 7 * rank + static_cast<int>(i)));
    const auto id = static_cast<int64_t>(i);
    if (w.on_device) {
      const DeviceTensor grad(context, simulated(rank), here);
      EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
    } else {
      EXPECT_OK(otr_pass_add_grad(pass.get(), id, &here, nullptr));
    }
  }
  Engine::end(pass);
  EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
}

otr_offload_options moving(int32_t states) {
  otr_offload_options options;
  EXPECT_OK(otr_offload_options_init(&options, sizeof options));
  options.states = states;
  return options;
}

// Resident bytes by purpose; of one memory.
std::map<std::string, int64_t> resident(const Engine& engine, int32_t device_type) {
  std::map<std::string, int64_t> bytes;
  for (const otr_memory_entry& entry : ledger(engine.get())) {
    if (entry.device_type == device_type) bytes[entry.purpose] = entry.resident_bytes;
  }
  return bytes;
}

// ---- Bits and memory ----

std::vector<Values> trained(const Where& w, int32_t states) {
  std::vector<Values> values;
  const auto context = w.on_device ? device_context() : make_context();
  run_ranks(context.get(), w.world, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_there(w));
    declare_there(engine, w, rank);
    std::vector<void*> others;
    for (int number = 0; number < 4; ++number) {
      step_there(engine, context.get(), w, rank, number);
      if (states == 0 || number == 1) continue;
      const std::vector<Values> before = engine.everything();
      const auto host = resident(engine, OTR_DEVICE_CPU), there = resident(engine, kSimulated);
      const otr_offload_options options = moving(states);
      ASSERT_OK(otr_engine_offload_states(engine.get(), &options));
      auto host_now = resident(engine, OTR_DEVICE_CPU), there_now = resident(engine, kSimulated);
      const std::pair<int32_t, const char*> kMoved[] = {
          {OTR_STATES_PUBLISHED, "published parameters"},
          {OTR_STATES_MASTER, "master weights"},
          {OTR_STATES_MOMENTS, "exp_avg"},
          {OTR_STATES_MOMENTS, "exp_avg_sq"}};
      for (const auto& [state, purpose] : kMoved) {
        const bool moved = w.on_device && (states & state) != 0;
        const int64_t on_device = w.on_device ? there.at(purpose) : 0;
        EXPECT_EQ(host_now[purpose], host.at(purpose) + (moved ? on_device : 0)) << purpose;
        EXPECT_EQ(there_now[purpose], moved ? 0 : on_device) << purpose;
      }
      if (w.on_device && (states & OTR_STATES_GRADIENTS) != 0) {
        EXPECT_EQ(there_now["gradient accumulators"], 0);
        EXPECT_EQ(host_now["gradient accumulators"], host.at("gradient accumulators"));
      }
      // Others take the places that were left.
      for (const char* purpose : {"published parameters", "exp_avg"}) {
        void* taken = nullptr;
        if (!w.on_device || there.at(purpose) == 0) continue;
        ASSERT_OK(otr_device_allocate(context.get(), kSimulated, rank,
                                      static_cast<size_t>(there.at(purpose)), &taken));
        others.push_back(taken);
      }
      ASSERT_OK(otr_engine_reload_states(engine.get()));
      EXPECT_EQ(resident(engine, OTR_DEVICE_CPU), host);
      EXPECT_EQ(resident(engine, kSimulated), there);
      EXPECT_EQ(engine.everything(), before);
    }
    const std::vector<Values> own = engine.everything();
    if (rank == 0) values = own;
    EXPECT_OK(otr_engine_finalize(engine.get()));
    for (void* const each : others) {
      EXPECT_OK(otr_device_free(context.get(), kSimulated, rank, each));
    }
  });
  return values;
}

TEST(DeviceAway, StatesComeBackBitByBit) {
  const std::string all = R"(, "offload_optimizer": {"device": "cpu"})",
                    half = R"(, "offload_optimizer": {"device": "cpu", "ratio": 0.4})",
                    parameters = all + R"(, "offload_param": {"device": "cpu"})";
  for (const int32_t stage : {0, 1, 2, 3}) {
    for (const int32_t world : {1, 2}) {
      for (const char* order : {"boundary", "micro_step"}) {
        for (const std::string& offload : {std::string(), all, half, parameters}) {
          if (stage == 0 && !offload.empty()) continue;
          if (stage < 3 && offload == parameters) continue;
          const Where w{stage, world, order, offload};
          SCOPED_TRACE("stage " + std::to_string(stage) + " world " + std::to_string(world) + " " +
                       order + offload);
          const std::vector<Values> expected = trained(w, 0);
          for (const int32_t states :
               {kEverything, static_cast<int32_t>(OTR_STATES_PUBLISHED),
                OTR_STATES_MASTER | OTR_STATES_GRADIENTS, int32_t{OTR_STATES_MOMENTS}}) {
            EXPECT_EQ(trained(w, states), expected) << states;
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

// A moment's scales move with its codes, the two halves of a split master each by its own kind.
TEST(DeviceAway, FormatsOfTwoArraysComeBackBitByBit) {
  const std::string blocks =
                        R"("exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}})",
                    half = R"(, "offload_optimizer": {"device": "cpu", "ratio": 0.4})";
  const Where all[] = {
      {.stage = 1, .own = R"(, "states": {"master": {"format": "split"}, )" + blocks},
      {.stage = 3, .world = 2, .own = R"(, "states": {"master": {"format": "split"}, )" + blocks},
      {.stage = 3, .world = 2, .offload = half, .own = R"(, "states": {)" + blocks}};
  for (const Where& w : all) {
    SCOPED_TRACE(w.own + w.offload);
    const std::vector<Values> expected = trained(w, 0);
    for (const int32_t states :
         {kEverything, static_cast<int32_t>(OTR_STATES_PUBLISHED),
          static_cast<int32_t>(OTR_STATES_MASTER), static_cast<int32_t>(OTR_STATES_MOMENTS)}) {
      EXPECT_EQ(trained(w, states), expected) << states;
    }
  }
}

TEST(DeviceAway, OnTheHostNothingMovesAndTheRulesAreTheSame) {
  const Where w{.stage = 1, .on_device = false};
  EXPECT_EQ(trained(w, kEverything), trained(w, 0));
  Solo solo(config_there(w));
  declare_there(solo.engine, w, 0);
  ASSERT_OK(otr_engine_offload_states(solo.engine.get(), nullptr));
  EXPECT_FAILS(OTR_E_STATE, otr_engine_save(solo.engine.get(), "/nowhere", "a", nullptr),
               "otr_engine_reload_states");
  ASSERT_OK(otr_engine_reload_states(solo.engine.get()));
}

// Another model has the device meanwhile.
TEST(DeviceAway, TheDeviceIsFreeMeanwhile) {
  const otr_device_plugin& table = simulated_table();
  otr_plugin_device* device = nullptr;
  ASSERT_EQ(table.open(0, &device), OTR_OK);
  const auto used = [&] {
    uint64_t free_bytes = 0, total = 0;
    EXPECT_EQ(table.memory_info(device, &free_bytes, &total), OTR_OK);
    return total - free_bytes;
  };
  for (const char* order : {"boundary", "micro_step"}) {
    const Where w{.stage = 2, .order = order};
    DeviceSolo solo(config_there(w));
    for (const Shape& shape : kWeights) {
      solo.engine.add(("w" + std::to_string(shape[0])).c_str(), shape, dyadic(count_of(shape), 1));
    }
    solo.engine.commit();
    const uint64_t before = used();
    EXPECT_GT(before, 0U);
    ASSERT_OK(otr_engine_offload_states(solo.engine.get(), nullptr));
    EXPECT_EQ(used(), 0U);
    ASSERT_OK(otr_engine_reload_states(solo.engine.get()));
    EXPECT_EQ(used(), before);
  }
  table.close(device);
}

// ---- Calls meanwhile ----

TEST(DeviceAway, CallsThatNeedThemAreRefused) {
  const Where w{};
  DeviceSolo solo(config_there(w));
  Engine& engine = solo.engine;
  for (size_t i = 0; i < kWeights.size(); ++i) {
    engine.add(("w" + std::to_string(i)).c_str(), kWeights[i], dyadic(count_of(kWeights[i]), 2));
  }
  engine.commit();
  otr_engine* const e = engine.get();
  const Tensor value = Tensor::filled(kWeights[0], 1);
  const int64_t id = 0;
  otr_tensor weight;
  otr_pass* pass = nullptr;
  size_t size = 0;
  const auto acquire = [&] { return otr_engine_acquire(e, &id, 1, nullptr, &weight); };
  const std::vector<std::pair<const char*, std::function<int32_t()>>> kAlways{
      {"otr_engine_step", [&] { return otr_engine_step(e, nullptr); }},
      {"otr_engine_step_begin", [&] { return otr_engine_step_begin(e); }},
      {"otr_engine_reduce", [&] { return otr_engine_reduce(e, nullptr); }},
      {"otr_engine_parameter_read",
       [&] { return otr_engine_parameter_read(e, id, OTR_VALUE_MASTER, &value); }},
      {"otr_engine_parameter_write",
       [&] { return otr_engine_parameter_write(e, id, OTR_VALUE_MASTER, &value); }},
      {"otr_engine_set_initial", [&] { return otr_engine_set_initial(e, &id, 1, &value); }},
      {"otr_engine_save", [&] { return otr_engine_save(e, "/nowhere", "a", nullptr); }},
      {"otr_engine_load", [&] { return otr_engine_load(e, "/nowhere", "a", nullptr); }},
      {"otr_engine_offload_states", [&] { return otr_engine_offload_states(e, nullptr); }}};
  const auto expect_refused = [&] {
    for (const auto& [name, call] : kAlways) {
      EXPECT_FAILS(OTR_E_STATE, call(), name, "left the device", "otr_engine_reload_states");
    }
  };
  ASSERT_OK(otr_engine_offload_states(e, nullptr));
  expect_refused();
  EXPECT_FAILS(OTR_E_STATE, acquire(), "published parameters", "otr_engine_reload_states");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_prefetch(e, &id, 1, nullptr), "otr_engine_reload_states");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_parameter_read(e, id, OTR_VALUE_PUBLISHED, &value),
               "published parameters");
  EXPECT_FAILS(OTR_E_STATE, otr_pass_begin(e, nullptr, 0, nullptr, &pass), "memory for gradients");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_discard(e), "memory for gradients");
  EXPECT_OK(otr_engine_check(e));
  EXPECT_OK(otr_engine_memory(e, nullptr, &size));
  EXPECT_OK(otr_engine_set_group_value(e, nullptr, "lr", 0.5));
  ASSERT_OK(otr_engine_reload_states(e));

  // Whoever generates with the weights themselves keeps them.
  const otr_offload_options options = moving(OTR_STATES_MASTER | OTR_STATES_MOMENTS);
  ASSERT_OK(otr_engine_offload_states(e, &options));
  expect_refused();
  EXPECT_OK(acquire());
  EXPECT_OK(otr_engine_release(e, &id, 1, nullptr));
  EXPECT_OK(otr_engine_parameter_read(e, id, OTR_VALUE_PUBLISHED, &value));
  ASSERT_OK(otr_engine_reload_states(e));
  step_there(engine, solo.context.get(), w, 0, 1);

  // Away to the end.
  ASSERT_OK(otr_engine_offload_states(e, nullptr));
  EXPECT_OK(otr_engine_finalize(e));
}

TEST(DeviceAway, WrongUseNamesTheWayOut) {
  const Where w{};
  DeviceSolo solo(config_there(w));
  otr_engine* const e = solo.engine.get();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_offload_states(e, nullptr), "otr_engine_commit");
  const int64_t id = solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_reload_states(e), "otr_engine_offload_states comes first");
  for (const int32_t wrong : {-1, 16}) {
    const otr_offload_options options = moving(wrong);
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_offload_states(e, &options),
                 "states = " + std::to_string(wrong), "OTR_STATES_MOMENTS (4)");
  }
  otr_offload_options options = moving(0);
  options.page_lock = 2;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_offload_states(e, &options), "page_lock = 2");
  options.struct_size = 3;
  EXPECT_FAILS(OTR_E_ABI, otr_engine_offload_states(e, &options), "struct_size");
  otr_tensor weight;
  ASSERT_OK(otr_engine_acquire(e, &id, 1, nullptr, &weight));
  EXPECT_FAILS(OTR_E_STATE, otr_engine_offload_states(e, nullptr), "\"w\" is acquired",
               "otr_engine_release");
  ASSERT_OK(otr_engine_release(e, &id, 1, nullptr));
  {
    const Owned<otr_pass> pass = solo.engine.begin();
    EXPECT_FAILS(OTR_E_STATE, otr_engine_offload_states(e, nullptr), "pass");
    Engine::end(pass);
  }
  EXPECT_FAILS(OTR_E_STATE, otr_engine_offload_states(e, nullptr), "otr_engine_step");
  solo.engine.step();
  EXPECT_OK(otr_engine_offload_states(e, nullptr));
}

TEST(DeviceAway, RanksMoveTheSame) {
  const auto context = device_context();
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    const Where w{.world = 2};
    Engine engine(comm, config_there(w));
    declare_there(engine, w, rank);
    const otr_offload_options options = moving(rank == 0 ? OTR_STATES_MASTER : OTR_STATES_MOMENTS);
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_offload_states(engine.get(), &options),
                 "rank 1 moves moments", "rank 0 master weights");
    step_there(engine, context.get(), w, rank, 1);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

// ---- Failures ----

// A device that others have filled: no rank reloads, and all can again once there is room.
TEST(DeviceAway, AFullDeviceKeepsThemOnTheHost) {
  const Where w{.stage = 3, .world = 2};
  const std::vector<Values> expected = trained(w, 0);
  const auto context = device_context();
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_there(w));
    declare_there(engine, w, rank);
    for (int number = 0; number < 2; ++number) {
      step_there(engine, context.get(), w, rank, number);
    }
    ASSERT_OK(otr_engine_offload_states(engine.get(), nullptr));
    const auto host = resident(engine, OTR_DEVICE_CPU), there = resident(engine, kSimulated);
    for (int attempt = 0; attempt < 6; ++attempt) {
      if (rank == 1) {
        EXPECT_OK(
            otr_device_set_value(context.get(), kSimulated, 1, "fail_allocation", attempt + 1));
      }
      EXPECT_FAILS(OTR_E_OUT_OF_MEMORY, otr_engine_reload_states(engine.get()), "on rank 1",
                   "simulated device 1");
      EXPECT_EQ(resident(engine, OTR_DEVICE_CPU), host);
      EXPECT_EQ(resident(engine, kSimulated), there);
      EXPECT_FAILS(OTR_E_STATE, otr_engine_step(engine.get(), nullptr), "otr_engine_reload_states");
    }
    ASSERT_OK(otr_engine_reload_states(engine.get()));
    for (int number = 2; number < 4; ++number) {
      step_there(engine, context.get(), w, rank, number);
    }
    const std::vector<Values> own = engine.everything();
    if (rank == 0) {
      EXPECT_EQ(own, expected);
    }
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

// The n-th of something fails on the way out or back: an error, a usable engine or one that is
// poisoned, and nothing is left behind.
TEST(DeviceAway, EveryFailureIsAnErrorAndNothingLeaks) {
  const otr_device_plugin& table = simulated_table();
  for (const char* what : {"fail_allocation", "fail_operation", "fail_pin"}) {
    const bool is_loss = std::string(what) == "fail_operation";
    int failures = 0;
    bool struck = true;
    for (int nth = 1; struck; ++nth) {
      SCOPED_TRACE(std::string(what) + " " + std::to_string(nth));
      ASSERT_LT(nth, 200);
      const int64_t locked = locked_kib();
      {
        const Where w{.offload = R"(, "offload_optimizer": {"device": "cpu", "ratio": 0.5})"};
        std::string config = config_there(w);
        config.replace(config.find(R"("outrigger": {)"), 14,
                       R"("outrigger": {"host_memory": {"pin": "require"}, )");
        DeviceSolo solo(config);
        const int64_t id = solo.engine.add("w", {3000}, dyadic(3000, 4));
        solo.engine.add("v", {3000}, dyadic(3000, 5));
        solo.engine.commit();
        const std::vector<Values> before = solo.engine.everything();
        EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, what, nth));
        int32_t first = OTR_OK;
        for (const bool away : {true, false}) {
          const auto call = [&] {
            return away ? otr_engine_offload_states(solo.engine.get(), nullptr)
                        : otr_engine_reload_states(solo.engine.get());
          };
          int32_t status = call();
          if (status != OTR_OK && first == OTR_OK) first = status;
          if (status == OTR_E_OUT_OF_MEMORY) status = call();
          if (status != OTR_OK) break;
        }
        double left = 0;
        EXPECT_OK(otr_device_get_value(solo.context.get(), kSimulated, 0, what, &left));
        EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, what, 0));
        struck = left == 0;
        EXPECT_EQ(first, !struck ? OTR_OK : is_loss ? OTR_E_DEVICE_FAULT : OTR_E_OUT_OF_MEMORY);
        failures += first != OTR_OK ? 1 : 0;
        if (first == OTR_E_DEVICE_FAULT) {
          otr_tensor weight;
          EXPECT_FAILS(OTR_E_POISONED,
                       otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &weight), "device");
        } else {
          EXPECT_EQ(solo.engine.everything(), before);
        }
      }
      EXPECT_EQ(locked_kib(), locked);
      otr_plugin_device* device = nullptr;
      uint64_t free_bytes = 0, total = 0;
      ASSERT_EQ(table.open(0, &device), OTR_OK);
      EXPECT_EQ(table.memory_info(device, &free_bytes, &total), OTR_OK);
      table.close(device);
      EXPECT_EQ(free_bytes, total);
    }
    EXPECT_GE(failures, 4) << what;
  }
}

}  // namespace
