// SPDX-License-Identifier: Apache-2.0
// The legality table against a second, independent statement of the same rules, and the parser
// against it.
#include "core/config/legality.h"

#include <set>

#include "core/base/text.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

// The rules as prose would put them, one question after the other.
Verdict expected(const Combination& c, EngineKind engine) {
  const bool low_master = c.bf16_master || c.fp16_master;
  if (c.bf16 && c.fp16) return Verdict::illegal;
  if (c.fp16_states) return Verdict::illegal;  // excluded on purpose
  if (c.bf16_master && (c.fp16_master || !c.bf16)) return Verdict::illegal;
  if (c.fp16_master && !c.fp16) return Verdict::illegal;
  if (c.split_master && !c.bf16) return Verdict::illegal;
  if (c.bf16_states && !c.bf16_master) return Verdict::illegal;  // states need the master
  if (c.stage == 0 && (low_master || c.offload_optimizer != Device::none)) return Verdict::illegal;
  if (c.stage != 3 && c.offload_optimizer == Device::nvme) return Verdict::illegal;
  if (c.stage != 3 && c.offload_param != Device::none) return Verdict::illegal;
  const bool on_device = engine == EngineKind::device;
  const bool built =
      c.offload_optimizer != Device::nvme && c.offload_param != Device::nvme &&
      !(on_device && c.offload_param != Device::none && c.offload_optimizer == Device::none) &&
      !(on_device && c.split_master && c.offload_optimizer != Device::none &&
        c.offload_param == Device::none);
  return built ? Verdict::legal : Verdict::not_built;
}

template <typename Visit>
void for_each_combination(Visit visit) {
  constexpr Device kDevices[] = {Device::none, Device::cpu, Device::nvme};
  for (unsigned bits = 0; bits < 256; ++bits) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      for (const Device optimizer : kDevices) {
        for (const Device param : kDevices) {
          for (const Autocast autocast : {Autocast::off, Autocast::bfloat16, Autocast::float16}) {
            Combination c;
            c.stage = stage;
            c.bf16 = (bits & 1) != 0;
            c.fp16 = (bits & 2) != 0;
            c.bf16_master = (bits & 4) != 0;
            c.fp16_master = (bits & 8) != 0;
            c.bf16_states = (bits & 16) != 0;
            c.fp16_states = (bits & 32) != 0;
            c.split_master = (bits & 64) != 0;
            c.block_states = (bits & 128) != 0;
            c.offload_optimizer = optimizer;
            c.offload_param = param;
            c.autocast = autocast;
            visit(c);
          }
        }
      }
    }
  }
}

std::string_view word(Device device) {
  return device == Device::none ? "none" : device == Device::cpu ? "cpu" : "nvme";
}

std::string text_of(const Combination& c) {
  return outrigger::format_text(
      R"({{"zero_optimization": {{"stage": {}, "offload_optimizer": {{"device": "{}", "nvme_path": "/x"}},
      "offload_param": {{"device": "{}", "nvme_path": "/x"}}}},
      "bf16": {{"enabled": {}, "bf16_master_weights_and_grads": {}, "bf16_optimizer_states": {}}},
      "fp16": {{"enabled": {}, "fp16_master_weights_and_grads": {}, "fp16_optimizer_states": {}}},
      "outrigger": {{"states": {{"master": {{"format": {}}}, "exp_avg": {{"format": {}}}, "exp_avg_sq": {{"format": {}}}}}}},
      "torch_autocast": {{"enabled": {}, "dtype": "{}"}}}})",
      c.stage, word(c.offload_optimizer), word(c.offload_param), c.bf16, c.bf16_master,
      c.bf16_states, c.fp16, c.fp16_master, c.fp16_states, c.split_master ? "\"split\"" : "null",
      c.block_states ? "\"block8\"" : "null", c.block_states ? "\"block8\"" : "null",
      c.autocast != Autocast::off, c.autocast == Autocast::float16 ? "float16" : "bfloat16");
}

TEST(Legality, TableEqualsTheRulesForEveryCombination) {
  std::set<std::string_view> used;
  int64_t combinations = 0;
  for (const EngineKind engine : {EngineKind::cpu, EngineKind::device}) {
    for_each_combination([&](const Combination& c) {
      const Rule& rule = judge(c, engine);
      EXPECT_EQ(rule.verdict, expected(c, engine)) << describe(c) << ": " << rule.name;
      used.insert(rule.name);
      ++combinations;
    });
  }
  EXPECT_EQ(combinations, 2 * 256 * 4 * 3 * 3 * 3);
  for (const Rule& rule : rules())
    EXPECT_TRUE(used.contains(rule.name)) << rule.name << " never decides";
}

TEST(Legality, ParserGivesTheVerdictWithReasonAndWaysOut) {
  for_each_combination([&](const Combination& c) {
    if ((c.offload_param == Device::cpu && c.bf16_states) || c.autocast == Autocast::bfloat16)
      return;  // bounds the time
    // Two keys for one state: a contradiction, whatever the table says.
    if (c.split_master && (c.bf16_master || c.fp16_master)) return;
    if (c.block_states && (c.bf16_states || c.fp16_states)) return;
    const Rule& rule = judge(c, EngineKind::cpu);
    const Fault fault = engine_fault(text_of(c), 2);
    switch (rule.verdict) {
      case Verdict::legal:
        EXPECT_EQ(fault.text, "") << describe(c);
        break;
      case Verdict::illegal:
        expect_fault_with(fault, OTR_E_CONFIG,
                          {"line ", " is illegal: ", rule.reason, rule.ways_out});
        break;
      case Verdict::not_built:
        expect_fault_with(fault, OTR_E_UNSUPPORTED,
                          {"line ", " is legal but not built yet: ", rule.reason, rule.ways_out});
        break;
    }
  });
}

// The rows of the published table, one by one, as a user would write them.
TEST(Legality, NamedCells) {
  const auto bf16 = [](int stage, std::string_view rest, std::string_view zero = "") {
    return outrigger::format_text(
        "{{\"zero_optimization\": {{\"stage\": {}{}}}, \"bf16\": {{\"enabled\": true{}}}}}", stage,
        zero, rest);
  };
  constexpr std::string_view kM = ", \"bf16_master_weights_and_grads\": true";
  constexpr std::string_view kS = ", \"bf16_optimizer_states\": true";
  constexpr std::string_view kCpu = ", \"offload_optimizer\": {\"device\": \"cpu\"}";
  const std::string both = outrigger::format_text("{}{}", kM, kS);
  expect_fault(
      engine_fault(bf16(0, kM)), OTR_E_CONFIG,
      "line 1, column 96: bf16.bf16_master_weights_and_grads = true (bf16 at stage 0, "
      "low-precision master) is illegal: a low-precision master is refused at stage 0, which keeps "
      "the float32 baseline; use zero_optimization.stage 1, 2 or 3, or keep the float32 master");
  for (int stage = 1; stage <= 3; ++stage) {
    EXPECT_EQ(engine_fault(bf16(stage, "")).text, "");
    EXPECT_EQ(engine_fault(bf16(stage, "", kCpu)).text, "");
    expect_fault_with(engine_fault(bf16(stage, kS)), OTR_E_CONFIG,
                      {"bf16_optimizer_states requires bf16_master_weights_and_grads",
                       "or ask for bfloat16 moments beside a float32 master"});
    // DeepSpeed wants offload for float32 states beside a bfloat16 master.
    const EngineConfig ten = parse_engine(bf16(stage, kM), 2);
    EXPECT_EQ(ten.optimizer.master.format, Format::bfloat16);
    EXPECT_EQ(ten.optimizer.exp_avg.format, Format::float32);
    EXPECT_EQ(engine_fault(bf16(stage, kM, kCpu)).text, "");
    const EngineConfig six = parse_engine(bf16(stage, both, kCpu), 2);
    EXPECT_EQ(six.optimizer.exp_avg_sq.format, Format::bfloat16);
    EXPECT_EQ(parse_engine(bf16(stage, both), 2).optimizer.exp_avg.format, Format::bfloat16);
  }
  const auto fp16 = [](int stage, std::string_view key) {
    return outrigger::format_text(
        "{{\"zero_optimization\": {{\"stage\": {}}}, \"fp16\": {{\"enabled\": true, \"{}\": "
        "true}}}}",
        stage, key);
  };
  for (const std::string_view key :
       {"fp16_master_weights_and_grads", "fp16_master_weights_and_gradients"}) {
    expect_fault_with(engine_fault(fp16(0, key)), OTR_E_CONFIG, {key, "is refused at stage 0"});
    EXPECT_EQ(engine_fault(fp16(2, key)).text, "");
  }
  expect_fault_with(engine_fault(fp16(2, "fp16_optimizer_states")), OTR_E_CONFIG,
                    {"excluded on purpose"});
  expect_fault_with(engine_fault("{\"bf16\": {\"bf16_master_weights_and_grads\": true}, "
                                 "\"zero_optimization\": {\"stage\": 1}}"),
                    OTR_E_CONFIG, {"needs bf16.enabled"});
  expect_fault_with(
      engine_fault("{\"outrigger\": {\"states\": {\"master\": {\"format\": \"bfloat16\"}}}}"),
      OTR_E_CONFIG, {"outrigger.states.master.format = \"bfloat16\"", "needs bf16.enabled"});
  expect_fault_with(
      engine_fault("{\"bf16\": {\"enabled\": true}, \"outrigger\": {\"states\": {\"master\": "
                   "{\"format\": \"bfloat16\"}}}}"),
      OTR_E_CONFIG, {"outrigger.states.master.format = \"bfloat16\"", "refused at stage 0"});
  // Nobody is asked for a directory that nothing would use.
  for (const char* section : {"offload_optimizer", "offload_param"}) {
    expect_fault_with(
        engine_fault(outrigger::format_text("{{\"zero_optimization\": {{\"stage\": 3, \"{}\": "
                                            "{{\"device\": \"nvme\"}}}}}}",
                                            section)),
        OTR_E_UNSUPPORTED, {"legal but not built yet", "device \"cpu\""});
  }
  EXPECT_EQ(engine_fault("{\"bf16\": {\"enabled\": true}, \"torch_autocast\": {\"enabled\": true, "
                         "\"dtype\": \"bfloat16\"}}")
                .text,
            "");
}

}  // namespace
}  // namespace outrigger::config
