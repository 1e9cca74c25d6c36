// SPDX-License-Identifier: Apache-2.0
// The next forward of an engine on a device begins while its step is pending: an acquire waits for
// its own parameters and no others.
#include <cmath>
#include <string>
#include <vector>

#include "blocking.h"
#include "device_support.h"

namespace {

using namespace otr_test;

struct Offload {
  const char* name;
  int32_t stage;
  const char* more;       // of the configuration
  const char* zero = "";  // of zero_optimization
  const char* ratio = "1";
  const char* rule = R"({"type": "AdamW", "params": {"lr": 0.25}})";
};
void PrintTo(const Offload& offload, std::ostream* out) { *out << offload.name; }

constexpr const char* kBf16 = R"(, "bf16": {"enabled": true})";
constexpr const char* kBf16States =
    R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true})";
constexpr const char* kParameters = R"(, "offload_param": {"device": "cpu"})";

constexpr Offload kOffloads[] = {
    {"stage_1", 1, ""},
    {"stage_2_bf16", 2, kBf16},
    {"stage_3_bf16_states", 3, kBf16States},
    {"in_part", 3, kBf16, "", "0.5"},
    {"parameters", 3, kBf16, kParameters},
    {"parameters_bf16_states", 3, kBf16States, kParameters},
    {"lamb", 2, "", "", "1", R"({"type": "Lamb", "params": {"lr": 0.25}})"},
    {"muon", 2, "", "", "1", R"({"type": "Muon", "params": {"lr": 0.25}})"},
};

std::string config_of(const Offload& o) {
  return R"({"optimizer": )" + std::string(o.rule) + R"(, "gradient_clipping": 0.5)" + o.more +
         R"(, "zero_optimization": {"stage": )" + std::to_string(o.stage) +
         R"(, "offload_optimizer": {"device": "cpu", "ratio": )" + o.ratio + "}" + o.zero + "}}";
}

class DevicePending : public testing::TestWithParam<Offload> {};
INSTANTIATE_TEST_SUITE_P(Offloads, DevicePending, testing::ValuesIn(kOffloads),
                         [](const auto& info) { return std::string(info.param.name); });

// Bit by bit, in the order of a stream of the host's own and as float32, too, whether the step
// updates or skips; the last parameter is frozen.
TEST_P(DevicePending, AcquiresShowWhatTheStepLeaves) {
  constexpr int64_t kSide = 40;
  for (const int32_t world : {1, 2}) {
    std::vector<Values> seen[2];
    for (const bool begun : {false, true}) {
      const auto context = device_context();
      run_ranks(context.get(), world, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config_of(GetParam()));
        EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
        otr_param_options options = param_options();
        for (const char* name : {"a", "b", "c", "d"}) {
          options.trainable = name[0] == 'd' ? 0 : 1;
          engine.add(name, {kSide, kSide}, dyadic(kSide * kSide, name[0]), &options);
        }
        engine.commit();
        for (int step = 0; step < 4; ++step) {
          const Owned<otr_pass> pass = engine.begin();
          for (int64_t id = 3; id-- > 0;) {
            Values values = dyadic(kSide * kSide, 3 * step + id + rank);
            if (step == 2 && id == 1) values[5] = HUGE_VAL;
            const DeviceTensor grad(context.get(), simulated(rank), Tensor({kSide, kSide}, values));
            EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
          }
          Engine::end(pass);
          if (begun) {
            EXPECT_OK(otr_engine_step_begin(engine.get()));
          } else {
            engine.step();
          }
          for (int64_t id = 0; id < 4; ++id) {
            otr_call_info info;
            EXPECT_OK(otr_call_info_init(&info, sizeof info));
            info.flags = id == 1 ? OTR_ACQUIRE_FLOAT32 : 0;
            otr_tensor weight;
            ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, &info, &weight));
            const Values values = values_there(context.get(), weight);
            if (rank == 0) seen[begun ? 1 : 0].push_back(values);
            ASSERT_OK(otr_engine_release(engine.get(), &id, 1, &info));
          }
          if (begun) {
            EXPECT_EQ(engine.report().outcome, step == 2 ? OTR_STEP_SKIPPED : OTR_STEP_APPLIED);
          }
        }
      });
    }
    EXPECT_EQ(seen[0].size(), 16U);
    EXPECT_EQ(seen[0], seen[1]) << world;
    EXPECT_NE(seen[0][0], seen[0][4]);
  }
}

// Eight parameters of one part each: the host has the first when a small part of the step's time is
// over. In one of many steps, as the machine's threads come and go.
TEST_P(DevicePending, ForwardBeginsBeforeTheStepIsOver) {
  constexpr int64_t kMany = int64_t{1} << 20;
  const DeviceSolo solo(config_of(GetParam()));
  Engine& engine = const_cast<Engine&>(solo.engine);
  const std::string_view name = GetParam().name;
  std::vector<int64_t> ids;
  for (const char* each : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    const bool matrix = name == "muon" && each[0] == 'h';
    ids.push_back(engine.add(each, matrix ? Shape{4, 4} : Shape{kMany},
                             Values(static_cast<size_t>(matrix ? 16 : kMany), 1)));
  }
  engine.commit();
  int before = 0;
  for (int i = 0; i < 20 && before == 0; ++i) {
    const Owned<otr_pass> pass = engine.begin();
    for (size_t id = ids.size(); id-- > 0;) {
      const Shape shape = engine.shape_of(ids[id]);
      const DeviceTensor grad(
          solo.context.get(), simulated(),
          Tensor(shape, Values(static_cast<size_t>(shape.size() == 1 ? kMany : 16), 2)));
      ASSERT_OK(otr_pass_add_grad(pass.get(), ids[id], &grad, nullptr));
    }
    Engine::end(pass);
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_bytes_per_second",
                                   100e6));  // 20 to 40 ms a part
    const auto begin = Clock::now();
    ASSERT_OK(otr_engine_step_begin(engine.get()));
    otr_call_info info;
    ASSERT_OK(otr_call_info_init(&info, sizeof info));
    info.flags = OTR_ACQUIRE_FLOAT32;  // a copy behind what is on its way
    otr_tensor weight;
    ASSERT_OK(otr_engine_acquire(engine.get(), ids.data(), 1, &info, &weight));
    const double first = seconds_since(begin);
    // Of the last one, which is not updated yet, a prefetch brings nothing old.
    EXPECT_OK(otr_engine_prefetch(engine.get(), &ids.back(), 1, nullptr));
    otr_tensor last;
    ASSERT_OK(otr_engine_acquire(engine.get(), &ids.back(), 1, nullptr, &last));
    EXPECT_EQ(engine.report().outcome, OTR_STEP_APPLIED);
    before += first < 0.7 * seconds_since(begin) ? 1 : 0;
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "copy_bytes_per_second", 0));
    const Values shown = values_there(solo.context.get(), weight);
    EXPECT_EQ(shown, engine.read(ids[0], OTR_VALUE_PUBLISHED));
    EXPECT_LT(shown[0], 1);
    EXPECT_EQ(values_there(solo.context.get(), last), engine.read(ids.back(), OTR_VALUE_PUBLISHED));
  }
  EXPECT_GT(before, 0);
}

// The step finds its device lost: the acquire that waits hears of it, as the report does.
TEST(DevicePendings, AFailureOfTheDeviceIsTheAcquires) {
  const DeviceSolo solo(config_of(kOffloads[1]));
  Engine& engine = const_cast<Engine&>(solo.engine);
  const int64_t id = engine.add("w", {1000}, Values(1000, 1));
  engine.commit();
  solo.pass({{id, Values(1000, 1)}});
  const DeviceTensor there(solo.context.get(), simulated(), Tensor::filled({4}, 1));
  const Tensor here = Tensor::filled({4}, 0);
  const HostStream own;  // the pass is over, so that no call before the step meets its loss
  ASSERT_EQ(simulated_table().synchronize(own.device), OTR_OK);
  EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", 1));
  EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_tensor_copy(solo.context.get(), &here, &there), "lost");
  EXPECT_OK(otr_engine_step_begin(engine.get()));
  otr_tensor weight;
  EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_FAILS(OTR_E_DEVICE_FAULT, otr_engine_report(engine.get(), -1, &report));
  EXPECT_FAILS(OTR_E_POISONED, otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
}

}  // namespace
