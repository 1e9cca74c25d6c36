// SPDX-License-Identifier: Apache-2.0
// A part of the states offloaded, the rest on the device: the bits of an engine on the CPU, the
// memory that the part takes on each side, and checkpoints that do not know of it.
#include <map>
#include <string>

#include "checkpoints.h"
#include "device_support.h"

namespace {

using namespace otr_test;

// 13,700 elements.
const std::vector<Shape> kModel{{70, 50}, {257}, {3000}, {11}, {20, 100}, {4932}};

struct Split {
  const char* precision = "";
  int32_t stage = 1, world = 1;
  std::string order = "boundary", rule = "AdamW", own = "";  // own: members of "outrigger"
};

constexpr const char* kPrecisions[] = {
    "", R"("bf16": {"enabled": true}, )",
    R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}, )",
    R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, )"};

// offload: a member of zero_optimization, or nothing.
std::string config_with(const Split& s, const std::string& offload) {
  return R"({"optimizer": {"type": ")" + s.rule +
         R"(", "params": {"lr": 0.01, "weight_decay": 0.1}}, )" + std::string(s.precision) +
         R"("gradient_clipping": 0.5, "zero_optimization": {"stage": )" + std::to_string(s.stage) +
         R"(, "reduce_bucket_size": 4096)" + offload + R"(}, "outrigger": {"reduction_order": ")" +
         s.order + "\"" + s.own + "}}";
}
std::string part(const std::string& ratio) {
  return R"(, "offload_optimizer": {"device": "cpu", "ratio": )" + ratio + "}";
}

void declare_model(Engine& engine) {
  for (size_t i = 0; i < kModel.size(); ++i) {
    engine.add(("p" + std::to_string(i)).c_str(), kModel[i],
               dyadic(count_of(kModel[i]), static_cast<int64_t>(i)));
  }
  engine.commit();
}

// Each rank's own gradients; the last parameter has two contributions more than declared, and in
// some steps one in the middle has none. Norms differ in every step, and clipping is exact.
void train_step(const Engine& engine, otr_context* there, int32_t rank, int number) {
  const Owned<otr_pass> pass = engine.begin();
  for (size_t i = kModel.size(); i-- > 0;) {
    if (i == 2 && number % 5 == 3) continue;
    Values values = dyadic(count_of(kModel[i]), 100 * number + 10 * rank + static_cast<int>(i));
    for (double& v : values) v *= 1 + number % 3;
    const Tensor here(kModel[i], values);
    for (int times = 0; times < (i == 0 || i + 1 == kModel.size() ? 3 : 1); ++times) {
      if (there == nullptr) {
        EXPECT_OK(otr_pass_add_grad(pass.get(), static_cast<int64_t>(i), &here, nullptr));
      } else {
        const DeviceTensor grad(there, simulated(rank), here);
        EXPECT_OK(otr_pass_add_grad(pass.get(), static_cast<int64_t>(i), &grad, nullptr));
      }
    }
  }
  Engine::end(pass);
  const otr_step_report report = engine.step();
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_LT(report.clip_coefficient, 1);
}

std::vector<Values> trained(const Split& s, const std::string& offload, bool on_device) {
  std::vector<Values> values;
  const auto context = on_device ? device_context() : make_context();
  run_ranks(context.get(), s.world, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_with(s, offload));
    if (on_device) {
      ASSERT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
    }
    declare_model(engine);
    for (int number = 0; number < 20; ++number) {
      train_step(engine, on_device ? context.get() : nullptr, rank, number);
    }
    const std::vector<Values> own = engine.everything();
    if (rank == 0) values = own;
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
  return values;
}

TEST(DeviceRatio, BitsDoNotDependOnThePart) {
  for (const char* precision : kPrecisions) {
    for (const int32_t stage : {1, 2, 3}) {
      for (const int32_t world : {1, 2}) {
        for (const char* order : {"boundary", "micro_step"}) {
          const Split s{precision, stage, world, order};
          const std::vector<Values> expected = trained(s, "", false);
          for (const char* ratio : {"1", "0.5", "0.3", "0"}) {
            SCOPED_TRACE(std::string(precision) + " stage " + std::to_string(stage) + " world " +
                         std::to_string(world) + " " + order + " ratio " + ratio);
            EXPECT_EQ(trained(s, part(ratio), true), expected);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

constexpr const char* kBlocks =
    R"(, "states": {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}})";

// 8-bit moments have their scales behind the codes of their side; LAMB has norms of both, Muon
// orthogonalises each matrix on its own.
TEST(DeviceRatio, BitsOfOtherFormatsAndRules) {
  const struct {
    const char *rule, *own;
    int32_t world;
  } kCases[] = {{"AdamW", kBlocks, 2},
                {"Lamb", "", 1},
                {"Lamb", "", 2},
                {"Muon", kBlocks, 1},
                {"Muon", "", 2}};
  for (const auto& [rule, own, world] : kCases) {
    for (const int32_t stage : {1, 3}) {
      const Split s{kPrecisions[1], stage, world, stage == 1 ? "boundary" : "micro_step",
                    rule,           own};
      const std::vector<Values> expected = trained(s, "", false);
      for (const char* ratio : {"1", "0.5", "0.3", "0"}) {
        SCOPED_TRACE(std::string(rule) + own + " stage " + std::to_string(stage) + " " + ratio);
        EXPECT_EQ(trained(s, part(ratio), true), expected);
        if (HasFailure()) return;
      }
    }
  }
}

// ---- Memory ----

// Bytes of a purpose in one memory.
int64_t bytes_of(const std::vector<otr_memory_entry>& entries, const std::string& purpose,
                 int32_t device_type) {
  for (const otr_memory_entry& entry : entries) {
    if (entry.purpose == purpose && entry.device_type == device_type) return entry.resident_bytes;
  }
  ADD_FAILURE() << "no " << purpose;
  return 0;
}

int64_t in_leaves(int64_t elements) { return (elements + 255) / 256 * 256; }

// The parameters declared first stay on the device, so many that their part is as near to the one
// asked for as it can be.
TEST(DeviceRatio, TheFirstParametersStayOnTheDevice) {
  const struct {
    const char* ratio;
    size_t kept;  // parameters
  } kCases[] = {{"1", 0},    {"0.9", 0}, {"0.8", 1},  {"0.5", 4},
                {"0.51", 3}, {"0.3", 5}, {"0.05", 6}, {"0", 6}};
  for (const auto& [ratio, kept] : kCases) {
    SCOPED_TRACE(ratio);
    for (const char* order : {"boundary", "micro_step"}) {
      const Split s{kPrecisions[1], 2, 1, order};
      DeviceSolo solo(config_with(s, part(ratio)));
      declare_model(solo.engine);
      int64_t there = 0, here = 0;
      for (size_t i = 0; i < kModel.size(); ++i) {
        (i < kept ? there : here) += in_leaves(count_of(kModel[i]));
      }
      const auto entries = ledger(solo.engine.get());
      for (const char* purpose : {"master weights", "exp_avg", "exp_avg_sq"}) {
        EXPECT_EQ(bytes_of(entries, purpose, kSimulated), 4 * there) << purpose;
        EXPECT_EQ(bytes_of(entries, purpose, OTR_DEVICE_CPU), 4 * here) << purpose;
      }
      EXPECT_EQ(bytes_of(entries, "gradient accumulators", kSimulated), 2 * there);
      EXPECT_EQ(bytes_of(entries, "gradient accumulators", OTR_DEVICE_CPU), 2 * here);
    }
  }
}

// Of a step's gradients and new weights only the offloaded part crosses.
TEST(DeviceRatio, OnlyTheOffloadedPartCrosses) {
  for (const char* order : {"boundary", "micro_step"}) {
    SCOPED_TRACE(order);
    std::map<std::string, double> down, up;
    for (const char* ratio : {"1", "0.5", "0"}) {
      const Split s{kPrecisions[1], 2, 1, order};
      DeviceSolo solo(config_with(s, part(ratio)));
      declare_model(solo.engine);
      const auto value = [&](const char* name) {
        double number = -1;
        EXPECT_OK(otr_device_get_value(solo.context.get(), kSimulated, 0, name, &number));
        return number;
      };
      std::vector<std::unique_ptr<DeviceTensor>> grads;
      for (const Shape& shape : kModel) {
        grads.push_back(
            std::make_unique<DeviceTensor>(solo.context.get(), simulated(),
                                           Tensor(shape, dyadic(count_of(shape), 7), "bfloat16")));
      }
      const Owned<otr_pass> pass = solo.engine.begin();
      const double before_down = value("bytes_to_host"), before_up = value("bytes_to_device");
      for (size_t i = kModel.size(); i-- > 0;) {
        EXPECT_OK(otr_pass_add_grad(pass.get(), static_cast<int64_t>(i), &*grads[i], nullptr));
      }
      Engine::end(pass);
      EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
      down[ratio] = value("bytes_to_host") - before_down;
      up[ratio] = value("bytes_to_device") - before_up;
    }
    const double all = 2 * 13700, some = 2 * (2000 + 4932);
    constexpr double kPadding = 2 * 256 * 8;
    for (const auto& bytes : {down, up}) {
      EXPECT_GE(bytes.at("1"), all);
      EXPECT_LE(bytes.at("1"), all + kPadding);
      EXPECT_GE(bytes.at("0.5"), some);
      EXPECT_LE(bytes.at("0.5"), some + kPadding);
    }
    EXPECT_EQ(up.at("0"), 0);
    EXPECT_EQ(down.at("0"), sizeof(otr_plugin_decision)) << "what the step has decided";
  }
}

// ---- Checkpoints ----

void expect_checkpoints(const Split& s) {
  const auto context = device_context();
  const Place place;
  std::vector<Values> saved, ended;
  const auto attempt = [&](const std::string& ratio, bool first) {
    run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_with(s, part(ratio)));
      ASSERT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
      declare_model(engine);
      if (first) {
        for (int number = 0; number < 3; ++number) train_step(engine, context.get(), rank, number);
        EXPECT_OK(otr_engine_save(engine.get(), place.text(), "a", nullptr));
      } else {
        train_step(engine, context.get(), rank, 77);
        EXPECT_OK(otr_engine_load(engine.get(), place.text(), "a", nullptr));
      }
      const std::vector<Values> now = engine.everything();
      for (int number = 3; number < 6; ++number) train_step(engine, context.get(), rank, number);
      const std::vector<Values> later = engine.everything();
      if (rank == 0 && first) saved = now, ended = later;
      if (rank == 0) {
        EXPECT_EQ(now, saved);
        EXPECT_EQ(later, ended);
      }
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  };
  attempt("0.5", true);
  ASSERT_NE(saved, ended);
  for (const char* ratio : {"1", "0.3", "0.5", "0"}) {
    SCOPED_TRACE(ratio);
    attempt(ratio, false);
  }
}

TEST(DeviceRatio, CheckpointsDoNotKnowOfIt) {
  expect_checkpoints({kPrecisions[2], 2, 2, "micro_step"});
  expect_checkpoints({kPrecisions[1], 2, 2, "micro_step", "AdamW", kBlocks});
}

}  // namespace
