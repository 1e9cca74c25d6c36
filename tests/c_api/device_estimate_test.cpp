// SPDX-License-Identifier: Apache-2.0
// The estimate for a device, asked of an engine on the host: that of an engine on a device, and its
// ledger, to the byte and in both memories.
#include <cstdlib>
#include <random>

#include "device_support.h"
#include "memory.h"

namespace {

using namespace otr_test;

struct Case {
  std::string config;
  int32_t world, start, element_bytes;
  bool large;  // one parameter of several parts on its way
};

struct Part {
  Shape shape;
  bool trainable;
  int64_t alias_of;
};
std::vector<Part> parts_of(const Case& c) {
  std::vector<Part> parts{{{600}, true, -1},  {{20, 30}, false, -1}, {{0}, true, -1},
                          {{7, 9}, true, -1}, {{600}, true, 0},      {{3, 300}, true, -1}};
  if (c.large) {
    parts.push_back({{600001}, true, -1});
    parts.push_back({{300001}, false, -1});
  }
  return parts;
}

void declare(const Engine& engine, const Case& c) {
  int index = 0;
  for (const Part& part : parts_of(c)) {
    otr_param_options options = param_options();
    options.trainable = part.trainable ? 1 : 0;
    options.alias_of = part.alias_of;
    Shape shape = part.shape;
    const int64_t count = count_of(shape);
    std::vector<float> values(static_cast<size_t>(count), 0.25F);
    otr_tensor initial;
    ASSERT_OK(otr_tensor_init(nullptr, "float32", static_cast<int32_t>(shape.size()), shape.data(),
                              &initial));
    if (c.start == OTR_START_GIVEN) {
      initial.data = values.data();
    } else if (part.alias_of < 0) {
      options.held_bytes =
          c.element_bytes * (c.start == OTR_START_HELD ? count : (count + c.world - 1) / c.world);
    }
    int64_t id = -1;
    ASSERT_OK(otr_engine_add_parameter(engine.get(), ("p" + std::to_string(index++)).c_str(),
                                       &initial, &options, &id));
  }
}

void set_initial(const Engine& engine, const Case& c) {
  const std::vector<Part> parts = parts_of(c);
  for (size_t i = 0; i < parts.size() && c.start != OTR_START_GIVEN; ++i) {
    if (parts[i].alias_of >= 0) continue;
    const auto id = static_cast<int64_t>(i);
    const Tensor value =
        Tensor::filled(parts[i].shape, 0.5, c.element_bytes == 2 ? "bfloat16" : "float32");
    EXPECT_OK(otr_engine_set_initial(engine.get(), &id, 1, &value));
  }
}

using Entries = std::vector<otr_memory_entry>;

void expect_peaks(const Entries& start, const Entries& training, const Entries& got,
                  const std::string& what) {
  ASSERT_EQ(start.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].peak_bytes, std::max(start[i].peak_bytes, training[i].peak_bytes))
        << got[i].purpose << " in memory " << got[i].device_type << what;
  }
}

// On one rank: the engine that is asked stays on the host; the other lives up to its first step.
void compare(int32_t rank, otr_comm* comm, const Case& c) {
  const std::string what = " of rank " + std::to_string(rank) + " of " + std::to_string(c.world) +
                           ", start " + std::to_string(c.start) + ", " + c.config;
  Engine asked(comm, c.config), there(comm, c.config);
  ASSERT_OK(otr_engine_set_device(there.get(), kSimulated, rank));
  declare(asked, c);
  declare(there, c);
  const auto estimates = [&](const Engine& engine, int32_t on_device) {
    otr_estimate_options options = options_for(c.world, rank);
    options.on_device = on_device;
    options.layout = OTR_LAYOUT_DEEPSPEED;
    std::vector<Entries> all{estimate(engine.get(), options)};
    options.layout = OTR_LAYOUT_OUTRIGGER;
    options.acquired_elements = 100;
    options.widened_elements = 70;
    options.output_elements = 30;
    options.grads_at_once = 1;
    all.push_back(estimate(engine.get(), options));
    options = options_for(c.world, rank);
    options.on_device = on_device;
    all.push_back(estimate(engine.get(), options));
    options.start = c.start;
    options.initial_element_bytes = c.element_bytes;
    all.push_back(estimate(engine.get(), options));
    return all;
  };
  const std::vector<Entries> expected = estimates(asked, 1);
  for (const int32_t on_device : {0, 1}) {
    const std::vector<Entries> own = estimates(there, on_device);
    for (size_t i = 0; i < own.size(); ++i) {
      expect_equal(expected[i], own[i], true, what);
      for (size_t k = 0; k < own[i].size(); ++k) {
        EXPECT_EQ(expected[i][k].device_type, own[i][k].device_type);
      }
    }
  }
  ASSERT_EQ(expected[0].back().device_type, OTR_DEVICE_EXTENSION);
  EXPECT_EQ(estimate(asked.get(), options_for(c.world, rank)).back().device_type, OTR_DEVICE_CPU)
      << "the default is where the engine is";
  const Entries &training = expected[2], &start = expected[3];
  there.commit();
  set_initial(there, c);
  expect_equal(start, ledger(there.get()), true, " at start" + what);
  Engine::end(there.begin());
  there.step();
  const Entries after = ledger(there.get());
  expect_equal(training, after, false, " in training" + what);
  expect_peaks(start, training, after, " after a step" + what);
  EXPECT_OK(otr_engine_finalize(there.get()));
}

// offload: the part of the states that is offloaded, or "all": and the parameters; empty: none.
std::string on_device_config(const Kind& kind, const std::string& offload, const std::string& own) {
  std::string config = config_of(kind, 1, "", own);
  const std::string section = R"("stage": )" + std::to_string(kind.stage);
  if (!offload.empty()) {
    config.insert(
        config.find(section) + section.size(),
        offload == "all"
            ? R"(, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})"
            : R"(, "offload_optimizer": {"device": "cpu", "ratio": )" + offload + "}");
  }
  return config;
}

std::string exchange_by(const char* backend, int any) {
  if (backend == nullptr) return {};
  return R"(, "exchange": {"backend": ")" + std::string(backend) + R"(", "reduction": ")" +
         (any % 2 == 0 ? "ranked" : backend) + "\"}";
}

TEST(DeviceEstimate, IsThatOfAnEngineThereAndItsLedger) {
  std::mt19937 random(5);
  int cases = 0;
  for (const char* precision : {"float32", "bf16", "bf16_states", "fp16", "fp16_master"}) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      for (const char* order : {"boundary", "micro_step"}) {
        for (const std::string offload : {"", "1", "0.5", "all"}) {
          if (offload == "all" && stage < 3) continue;
          const bool low = std::string_view(precision).size() > 7;  // bf16_states, fp16_master
          if (stage == 0 && (!offload.empty() || low)) continue;    // legal from stage 1 on
          for (const int32_t world : {1, 2, 3, 4}) {
            const char* const backend = std::getenv("OTR_TEST_BACKEND");  // null: by the host
            const bool cut = world == 4 && random() % 2 == 0;
            const int32_t shard = cut && backend == nullptr ? 2 : 0;
            const std::string own =
                R"("initial_values": ")" + std::string(random() % 2 == 0 ? "rank0" : "compare") +
                R"(", "bucket_buffers": )" + std::to_string(1 + random() % 5) +
                R"(, "mesh": {"shard": )" + std::to_string(shard) + R"(, "states": ")" +
                (random() % 2 == 0 ? "all" : "group") + R"("})" + exchange_by(backend, cases);
            Case c{on_device_config({"", stage, precision, order}, offload, own), world,
                   static_cast<int32_t>(OTR_START_GIVEN + random() % 3), random() % 2 == 0 ? 2 : 4,
                   random() % 4 == 0};
            if (random() % 3 == 0) {
              c.config.replace(c.config.find("AdamW"), 5, random() % 2 == 0 ? "Muon" : "Lamb");
            }
            run_ranks(
                world, [&](int32_t rank, otr_comm* comm) { compare(rank, comm, c); }, 20,
                "simulated");
            ++cases;
            ASSERT_FALSE(testing::Test::HasFailure());
          }
        }
      }
    }
  }
  EXPECT_GE(cases, 300);
}

// A split master's state is two bytes, a moment in blocks 260 for 256 elements.
TEST(DeviceEstimate, IsThatOfTheFormatsThatHaveTwoArrays) {
  std::mt19937 random(6);
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const char* order : {"boundary", "micro_step"}) {
      for (const char* rule : {"AdamW", "Muon", "Lamb"}) {
        for (const char* master : {"split", "bfloat16", "float32"}) {
          if (stage == 0 && master == std::string_view("bfloat16")) continue;
          for (const std::string offload : {"", "1", "0.5", "0", "all"}) {
            if (offload == "all" && stage < 3) continue;
            const bool offloads = offload == "1" || offload == "0.5";
            if (offloads && (stage == 0 || master == std::string_view("split"))) continue;
            const int32_t world = 1 + static_cast<int32_t>(random() % 3);
            const std::string own = R"("states": {"master": {"format": ")" + std::string(master) +
                                    R"("}, "exp_avg": {"format": "block8"},
                                        "exp_avg_sq": {"format": "block8"}})";
            Case c{on_device_config({"", stage, "bf16", order}, offload, own), world,
                   static_cast<int32_t>(OTR_START_GIVEN + random() % 3), random() % 2 == 0 ? 2 : 4,
                   random() % 4 == 0};
            c.config.replace(c.config.find("AdamW"), 5, rule);
            run_ranks(
                world, [&](int32_t rank, otr_comm* comm) { compare(rank, comm, c); }, 20,
                "simulated");
            ASSERT_FALSE(testing::Test::HasFailure());
          }
        }
      }
    }
  }
}

// A configuration is judged as for a device, and the engine stays as it is.
TEST(DeviceEstimate, RefusesWhatIsNotLegalThere) {
  const std::string split =
      R"({"bf16": {"enabled": true}, "outrigger": {"states": {"master": {"format": "split"}}},
          "zero_optimization": {"stage": 1)";
  Solo solo(split + R"(, "offload_optimizer": {"device": "cpu"}}})");
  solo.engine.add("w", {4}, Values(4, 1));
  size_t count = 0;
  const auto attempt = [&](const Solo& of, int32_t on_device) {
    otr_estimate_options options = options_for(1, 0);
    options.on_device = on_device;
    count = 0;
    return otr_engine_estimate(of.engine.get(), &options, nullptr, &count);
  };
  EXPECT_FAILS(OTR_E_UNSUPPORTED, attempt(solo, 1), "host memory", "offload_optimizer");
  EXPECT_OK(attempt(solo, 0));
  for (const int32_t wrong : {2, -1}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, attempt(solo, wrong), "on_device = " + std::to_string(wrong),
                 "legal is 0");
  }
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_UNSUPPORTED, attempt(solo, 1), "offload_optimizer") << "after commit, too";
  Solo there(split + "}}");
  EXPECT_OK(attempt(there, 0));
  const size_t on_host = count;
  EXPECT_OK(attempt(there, 1));
  EXPECT_EQ(count, 2 * on_host);
}

}  // namespace
