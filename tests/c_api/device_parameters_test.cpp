// SPDX-License-Identifier: Apache-2.0
// A device's parameters in host memory: what is on the device and when, how often it is copied
// there, that an acquire shows the last value whoever wrote it, and what there is no room for. The
// engine's matrix has the bits.
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "checkpoints.h"
#include "device_support.h"
#include "memory.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 1000;  // elements of a parameter
constexpr int64_t kAny = int64_t{1} << 40;

// live: parameters that fit onto the device.
std::string offloaded(int64_t live, const std::string& more = "", const std::string& own = "") {
  return R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": 0,
            "zero_optimization": {"stage": 3,
              "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"},
              "stage3_max_live_parameters": )" +
         std::to_string(live == kAny ? kAny : live * kCount) + "}" + more +
         R"(, "outrigger": {"reduction_order": "micro_step")" + own + "}}";
}

// An engine with so many parameters, the last of them frozen, and what its device is asked for.
class Trained {
 public:
  Trained(otr_context* context, otr_comm* comm, int32_t rank, const std::string& config,
          int64_t parameters = 6)
      : context_(context),
        rank_(rank),
        grad_(context, simulated(rank), Tensor::filled({kCount}, 1)),
        engine_(comm, config) {
    EXPECT_OK(otr_engine_set_device(engine_.get(), kSimulated, rank));
    for (int64_t i = 0; i < parameters; ++i) {
      otr_param_options options = param_options();
      options.trainable = i + 1 < parameters ? 1 : 0;
      ids_.push_back(
          engine_.add(("p" + std::to_string(i)).c_str(), {kCount}, first_of(i), &options));
    }
    engine_.commit();
  }

  static Values first_of(int64_t id) { return dyadic(kCount, id); }
  [[nodiscard]] otr_engine* get() const { return engine_.get(); }
  [[nodiscard]] const Engine& engine() const { return engine_; }
  [[nodiscard]] const std::vector<int64_t>& ids() const { return ids_; }

  // What is shown; and then it is released.
  Values use(int64_t id, bool as_float32 = false) const {
    otr_call_info info;
    EXPECT_OK(otr_call_info_init(&info, sizeof info));
    info.flags = as_float32 ? OTR_ACQUIRE_FLOAT32 : 0;
    otr_tensor weight;
    EXPECT_OK(otr_engine_acquire(get(), &id, 1, &info, &weight));
    Values values = values_there(context_, weight);
    EXPECT_OK(otr_engine_release(get(), &id, 1, &info));
    return values;
  }
  void prefetch(int64_t id) const { EXPECT_OK(otr_engine_prefetch(get(), &id, 1, nullptr)); }

  // Parameters' worth of bytes that come to the device in it.
  double brought_by(const std::function<void()>& body) const {
    const double before = value("bytes_to_device");
    body();
    return (value("bytes_to_device") - before) / (4.0 * kCount);
  }
  [[nodiscard]] double value(const char* name) const {
    double number = -1;
    EXPECT_OK(otr_device_get_value(context_, kSimulated, rank_, name, &number));
    return number;
  }
  void set(const char* name, double number) const {
    EXPECT_OK(otr_device_set_value(context_, kSimulated, rank_, name, number));
  }

  void step() const {
    const Owned<otr_pass> pass = engine_.begin();
    for (size_t i = ids_.size() - 1; i-- > 0;) {
      EXPECT_OK(otr_pass_add_grad(pass.get(), ids_[i], &grad_, nullptr));
    }
    Engine::end(pass);
    EXPECT_EQ(engine_.step().outcome, OTR_STEP_APPLIED);
  }

 private:
  otr_context* context_;
  int32_t rank_;
  DeviceTensor grad_;
  Engine engine_;
  std::vector<int64_t> ids_;
};

struct Alone {
  explicit Alone(const std::string& config)
      : context(device_context()),
        comm(make_self(context.get())),
        trained(context.get(), comm.get(), 0, config) {}
  Owned<otr_context> context;
  Owned<otr_comm> comm;
  Trained trained;
};

TEST(DeviceParameters, AreInHostMemoryUntilTheyAreAcquired) {
  const Alone alone(offloaded(kAny));
  const Engine& engine = alone.trained.engine();
  const int64_t all = 6 * 1024 * 4;  // in leaves
  EXPECT_EQ(resident_bytes(engine, OTR_DEVICE_CPU, "published parameters"), all);
  EXPECT_EQ(resident_bytes(engine, kSimulated, "published parameters"), 0);
  // A master in the published format is the published value.
  EXPECT_EQ(resident_bytes(engine, OTR_DEVICE_CPU, "master weights"), 0);
  const int64_t id = alone.trained.ids()[2];
  otr_tensor weight;
  EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
  EXPECT_EQ(weight.device.device_type, kSimulated);
  EXPECT_EQ(resident_bytes(engine, kSimulated, "acquired copies"), 4 * kCount);
  EXPECT_EQ(values_there(alone.context.get(), weight), Trained::first_of(2));
  EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
}

// Forwards and backwards with room for three of six: the last three are there when the backward
// begins, and each of the others comes once more, whether it is fetched ahead or not.
TEST(DeviceParameters, WhatIsUsedAgainSoonStays) {
  struct Expected {
    int64_t live;
    double brought;
  };
  for (const auto& [live, brought] : {Expected{0, 12}, {3, 9}, {6, 6}, {kAny, 6}}) {
    for (const bool ahead : {false, true}) {
      SCOPED_TRACE(std::to_string(live) + (ahead ? " ahead" : ""));
      const Alone alone(offloaded(live));
      const Trained& t = alone.trained;
      const auto pass = [&] {
        for (const int64_t id : t.ids()) {
          EXPECT_EQ(t.use(id).size(), static_cast<size_t>(kCount));
          if (ahead && id < 5) t.prefetch(id + 1);
        }
        for (int64_t id = 5; id >= 0; --id) {
          t.use(id);
          if (ahead && id > 0) t.prefetch(id - 1);
        }
      };
      EXPECT_EQ(t.brought_by(pass), brought);
      // Two micro-batches: what the first ended with begins the second.
      const double again = t.brought_by(pass);
      EXPECT_EQ(again, live == 3 ? 6 : live == 0 ? 12 : 0);
      t.step();
      EXPECT_EQ(t.brought_by(pass), brought);  // all are new
    }
  }
}

// What a backward has used twice goes before what it still needs; a step begins anew.
TEST(DeviceParameters, WhatWasUsedMostGoesFirst) {
  const Alone alone(offloaded(3));
  const Trained& t = alone.trained;
  const auto use_all = [&](std::initializer_list<int64_t> ids) {
    return t.brought_by([&] {
      for (const int64_t id : ids) t.use(id);
    });
  };
  EXPECT_EQ(use_all({3, 4, 5}), 3);
  EXPECT_EQ(use_all({5, 2, 4, 3}), 1) << "5 was used twice";
  EXPECT_EQ(use_all({5, 5, 5}), 1);
  t.step();
  EXPECT_EQ(use_all({3, 5, 4}), 3);
  EXPECT_EQ(use_all({2, 5, 4}), 1) << "3 was used first";
}

// A prefetch brings it, and no acquire does so again; where there is no room it does nothing.
TEST(DeviceParameters, APrefetchTakesNoRoomOfWhatIsNeededSooner) {
  const Alone alone(offloaded(2));
  const Trained& t = alone.trained;
  EXPECT_EQ(t.brought_by([&] { t.prefetch(0); }), 1);
  EXPECT_EQ(t.brought_by([&] { EXPECT_EQ(t.use(0), Trained::first_of(0)); }), 0);
  EXPECT_EQ(t.brought_by([&] { t.prefetch(0); }), 0) << "it is there";
  t.prefetch(1);
  EXPECT_EQ(t.brought_by([&] { t.prefetch(2); }), 1) << "0 was used, and makes room";
  EXPECT_EQ(t.brought_by([&] { t.prefetch(3); }), 0) << "1 and 2 are not used yet";
  EXPECT_EQ(t.brought_by([&] { EXPECT_EQ(t.use(3), Trained::first_of(3)); }), 1);
}

TEST(DeviceParameters, TheEstimateKnowsWhatStays) {
  for (const int64_t live : {int64_t{0}, int64_t{3}, kAny}) {
    const Alone alone(offloaded(live));
    const Trained& t = alone.trained;
    otr_estimate_options options = options_for(1, 0);
    options.acquired_elements = kCount;
    const auto peak = [&](const std::vector<otr_memory_entry>& entries) {
      for (const otr_memory_entry& e : entries) {
        const bool is_it = std::string_view(e.purpose) == "acquired copies";
        if (is_it && e.device_type == kSimulated) return e.peak_bytes;
      }
      return int64_t{-1};
    };
    const int64_t expected = peak(estimate(t.get(), options));
    EXPECT_EQ(expected, 4 * kCount * (live == 0 ? 1 : live == 3 ? 3 : 6));
    for (const int64_t id : t.ids()) t.use(id);
    EXPECT_EQ(peak(ledger(t.get())), expected);
  }
}

// However much is acquired at a time is there; the limit is for what is not.
TEST(DeviceParameters, WhatIsAcquiredMayExceedTheLimit) {
  const Alone alone(offloaded(2));
  const Trained& t = alone.trained;
  for (const int64_t id : {0, 5}) t.use(id);  // which linger
  std::vector<otr_tensor> weights(6);
  ASSERT_OK(otr_engine_acquire(t.get(), t.ids().data(), 6, nullptr, weights.data()));
  for (int64_t id = 0; id < 6; ++id) {
    EXPECT_EQ(values_there(alone.context.get(), weights[static_cast<size_t>(id)]),
              Trained::first_of(id));
  }
  ASSERT_OK(otr_engine_release(t.get(), t.ids().data(), 6, nullptr));
  EXPECT_EQ(resident_bytes(t.engine(), kSimulated, "acquired copies"), 2 * 4 * kCount);
}

TEST(DeviceParameters, WhatOnlyLingersMakesRoomWhereMemoryEnds) {
  const Alone alone(offloaded(kAny));
  const Trained& t = alone.trained;
  for (int64_t id = 0; id < 3; ++id) t.use(id);
  t.set("fail_allocation", 1);
  EXPECT_EQ(t.use(3), Trained::first_of(3));
  EXPECT_EQ(resident_bytes(t.engine(), kSimulated, "acquired copies"), 3 * 4 * kCount);
  // What is in use does not.
  const int64_t all[] = {0, 1, 2, 3, 4};
  std::vector<otr_tensor> weights(5);
  ASSERT_OK(otr_engine_acquire(t.get(), all, 4, nullptr, weights.data()));
  t.set("fail_allocation", 1);
  EXPECT_FAILS(OTR_E_OUT_OF_MEMORY,
               otr_engine_acquire(t.get(), &all[4], 1, nullptr, weights.data()), "bytes");
  ASSERT_OK(otr_engine_release(t.get(), all, 4, nullptr));
  EXPECT_EQ(t.use(4), Trained::first_of(4));
}

// Whoever writes, and whether it lingers, is in use, or is float32 for a host.
TEST(DeviceParameters, AnAcquireShowsWhatWasWrittenLast) {
  for (const char* precision : {"", R"(, "bf16": {"enabled": true})"}) {
    for (const bool as_float32 : {false, true}) {
      SCOPED_TRACE(std::string(precision) + (as_float32 ? " as float32" : ""));
      const Alone alone(offloaded(kAny, precision));
      const Trained& t = alone.trained;
      const auto expect = [&](int64_t id, double value) {
        EXPECT_EQ(t.use(id, as_float32), Values(kCount, value));
      };
      const auto write = [&](int64_t id, double value) {
        const Tensor source = Tensor::filled({kCount}, value);
        EXPECT_OK(otr_engine_parameter_write(t.get(), id, OTR_VALUE_MASTER, &source));
      };
      t.use(1, as_float32);
      EXPECT_EQ(t.brought_by([&] { write(1, 4); }), 0) << "it comes when it is used";
      expect(1, 4);
      t.step();
      expect(1, 3.5);
      const Tensor local = Tensor::filled({kCount}, 8);
      EXPECT_OK(otr_engine_local_write(t.get(), 1, OTR_VALUE_MASTER, &local));
      expect(1, 8);
      // The frozen one, which no step changes.
      write(5, 2);
      expect(5, 2);
      t.step();
      expect(5, 2);
      expect(1, 7.5);

      const int64_t id = 2;
      otr_tensor held;
      ASSERT_OK(otr_engine_acquire(t.get(), &id, 1, nullptr, &held));
      write(id, 16);
      EXPECT_EQ(values_there(alone.context.get(), held), Values(kCount, 16)) << "follows";
      const Tensor own = Tensor::filled({kCount}, 32);
      EXPECT_OK(otr_engine_local_write(t.get(), id, OTR_VALUE_MASTER, &own));
      ASSERT_OK(otr_engine_release(t.get(), &id, 1, nullptr));
      expect(id, 32);
    }
  }
}

// A step may write the host's weights while a device has not copied the last ones yet: it waits.
TEST(DeviceParameters, AStepComesAfterCopiesThatAreUnderWay) {
  const Alone alone(offloaded(kAny));
  const Trained& t = alone.trained;
  const int64_t id = 0;
  for (int step = 0; step < 3; ++step) {
    t.set("copy_latency", 0.02);
    otr_tensor weight;
    ASSERT_OK(otr_engine_acquire(t.get(), &id, 1, nullptr, &weight));
    t.prefetch(1);  // which nobody takes
    t.set("copy_latency", 0);
    t.step();
    Values expected = Trained::first_of(0);
    for (double& v : expected) v -= 0.5 * (step + 1);
    EXPECT_EQ(t.use(0), expected);
  }
}

// Once it has begun, a training waits for no stream, allocates nothing that a driver waits for, and
// copies locked pages only.
TEST(DeviceParameters, AStepWaitsForNoStreamAndCopiesLockedPages) {
  const Alone alone(offloaded(3, R"(, "bf16": {"enabled": true})"));
  const Trained& t = alone.trained;
  const auto train = [&] {
    for (const int64_t id : t.ids()) {
      otr_tensor weight;
      ASSERT_OK(otr_engine_acquire(t.get(), &id, 1, nullptr, &weight));
      ASSERT_OK(otr_engine_release(t.get(), &id, 1, nullptr));
    }
    t.step();
  };
  for (int i = 0; i < 2; ++i) train();
  std::map<std::string, double> before;
  for (const char* cost : {"unpinned_bytes", "synchronizations", "allocations"}) {
    before[cost] = t.value(cost);
  }
  for (int i = 0; i < 3; ++i) train();
  for (const auto& [cost, value] : before) EXPECT_EQ(t.value(cost.c_str()), value) << cost;
}

// Ranks of one host have one copy, and no acquire waits for another rank; others gather.
TEST(DeviceParameters, RanksOfOneHostHaveOneCopy) {
  const auto context = device_context();
  for (const bool share : {true, false}) {
    std::vector<int64_t> published(2);
    run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
      const Trained t(context.get(), comm, rank,
                      offloaded(kAny, "", share ? "" : R"(, "share_parameters": false)"));
      published[static_cast<size_t>(rank)] =
          resident_bytes(t.engine(), OTR_DEVICE_CPU, "published parameters");
      for (int step = 0; step < 2; ++step) {
        if (!share) {
          for (const int64_t id : t.ids()) t.use(id);
        } else if (rank == 1) {  // which rank 0 does not
          t.use(3);
          t.prefetch(4);
        }
        t.step();
        Values expected = Trained::first_of(3);
        for (double& v : expected) v -= 0.5 * (step + 1);
        EXPECT_EQ(t.use(3), expected);
        EXPECT_EQ(t.use(5), Trained::first_of(5));
      }
      EXPECT_OK(otr_engine_finalize(t.get()));
    });
    const int64_t frozen = 1024 * 4, trained = 5 * 1024 * 4;
    EXPECT_EQ(published[0] + published[1], trained + (share ? frozen : 2 * frozen));
  }
}

// On another stage, on the host, and the other way round.
TEST(DeviceParameters, CheckpointsDoNotKnowOfIt) {
  const Place place;
  const auto context = device_context();
  const auto comm = make_self(context.get());
  std::vector<Values> expected;
  {
    const Trained t(context.get(), comm.get(), 0,
                    offloaded(kAny, R"(, "bf16": {"enabled": true})"));
    t.step();
    EXPECT_OK(otr_engine_save(t.get(), place.text(), "one", nullptr));
    expected = t.engine().everything();
  }
  const Trained again(context.get(), comm.get(), 0, offloaded(2, R"(, "bf16": {"enabled": true})"));
  again.use(0);
  EXPECT_OK(otr_engine_load(again.get(), place.text(), "one", nullptr));
  EXPECT_EQ(again.engine().everything(), expected);
  EXPECT_EQ(again.use(0), again.engine().read(0, OTR_VALUE_PUBLISHED));
  // Nothing of them is on the device that could leave it.
  EXPECT_OK(otr_engine_offload_states(again.get(), nullptr));
  otr_tensor weight;
  const int64_t id = 0;
  EXPECT_FAILS(OTR_E_STATE, otr_engine_acquire(again.get(), &id, 1, nullptr, &weight),
               "left the device");
  EXPECT_OK(otr_engine_reload_states(again.get()));
  EXPECT_EQ(again.engine().everything(), expected);
}

TEST(DeviceParameters, WhatItCannotDoIsNamed) {
  const auto context = device_context();
  const auto comm = make_self(context.get());
  const auto expect = [&](const char* zero, int32_t status, const char* first, const char* second) {
    const std::string config = R"({"zero_optimization": {)" + std::string(zero) + "}}";
    otr_engine* made = nullptr;
    int32_t got = otr_engine_create(comm.get(), config.c_str(), &made);
    const Owned<otr_engine> engine(made);
    if (got == OTR_OK) got = otr_engine_set_device(engine.get(), kSimulated, 0);
    EXPECT_EQ(got, status);
    for (const char* part : {first, second}) {
      EXPECT_NE(std::string(otr_last_error_message()).find(part), std::string::npos)
          << otr_last_error_message();
    }
  };
  expect(R"("stage": 3, "offload_param": {"device": "cpu"})", OTR_E_UNSUPPORTED,
         "offload_param.device", "offload_optimizer.device \"cpu\"");
  expect(R"("stage": 3, "offload_param": {"device": "cpu"},
            "offload_optimizer": {"device": "cpu", "ratio": 0.5})",
         OTR_E_UNSUPPORTED, "offload_optimizer.ratio", "set the ratio to 1");
  expect(R"("stage": 3, "offload_param": {"device": "cpu"},
            "offload_optimizer": {"device": "cpu", "ratio": 0})",
         OTR_E_UNSUPPORTED, "offload_optimizer.ratio", "set the ratio to 1");
  expect(R"("stage": 2, "offload_param": {"device": "cpu"},
            "offload_optimizer": {"device": "cpu"})",
         OTR_E_CONFIG, "offload_param", "zero_optimization.stage 3");
}

}  // namespace
