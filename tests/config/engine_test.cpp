// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/text.h"
#include "core/config/keys.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

TEST(Engine, WithoutAConfigurationIsPlain) {
  for (const std::string_view text : {"", "{}", "  \n"}) {
    const EngineConfig config = parse_engine(text, 3);
    EXPECT_EQ(config.stage, 0);
    EXPECT_EQ(config.compute, Format::float32);
    EXPECT_EQ(config.accumulator, Format::float32);
    EXPECT_EQ(config.optimizer.type, "AdamW");
    EXPECT_TRUE(config.optimizer.decoupled);
    EXPECT_EQ(config.optimizer.lr, 1e-3);
    EXPECT_EQ(config.optimizer.beta1, 0.9);
    EXPECT_EQ(config.optimizer.beta2, 0.999);
    EXPECT_EQ(config.optimizer.eps, 1e-8);
    EXPECT_EQ(config.optimizer.weight_decay, 0);
    EXPECT_EQ(config.optimizer.gradient_clipping, 0);
    EXPECT_EQ(config.optimizer.seed, 0U);
    EXPECT_EQ(config.optimizer.master.format, Format::float32);
    EXPECT_EQ(config.accumulation_steps, 1);
    EXPECT_TRUE(config.average);
    EXPECT_EQ(config.order, Order::boundary);
    EXPECT_EQ(config.bucket_elements, 8 * 1024 * 1024);
    EXPECT_EQ(config.bucket_buffers, 4);
    EXPECT_EQ(config.workers, 0);
    EXPECT_EQ(config.unused, Unused::skip);
    EXPECT_EQ(config.initial, Initial::rank0);
    EXPECT_TRUE(config.check_overflow);
    EXPECT_TRUE(config.warnings.empty());
  }
}

TEST(Engine, ClippingIsOneOnceAnythingIsConfigured) {
  EXPECT_EQ(parse_engine("{\"zero_optimization\": {\"stage\": 1}}", 1).optimizer.gradient_clipping,
            1.0);
  EXPECT_EQ(parse_engine("{\"gradient_clipping\": 0}", 1).optimizer.gradient_clipping, 0.0);
  EXPECT_EQ(parse_engine("{\"gradient_clipping\": 0.5}", 1).optimizer.gradient_clipping, 0.5);
}

// As pydantic reads them: a field of the ZeRO section by its alias or by its name.
TEST(Engine, TakesKeysByTheNamesOfDeepSpeedsFields) {
  const std::pair<std::string_view, std::string_view> kFields[] = {
      {"prefetch_bucket_size", "7"},
      {"param_persistence_threshold", "8"},
      {"model_persistence_threshold", "9"},
      {"max_live_parameters", "10"},
      {"max_reuse_distance", "11"},
      {"module_granularity_threshold", "12"},
      {"gather_16bit_weights_on_model_save", "true"},
      {"use_all_reduce_for_fetch_params", "true"},
      {"allgather_sequential", "true"}};
  for (const auto& [name, value] : kFields) {
    const auto given = [&, name = name, value = value](std::string_view more) {
      const std::string text = outrigger::format_text(
          R"({{"zero_optimization": {{"stage": 3, "{}": {}{}}}}})", name, value, more);
      return nlohmann::json::parse(parse_engine(text, 1).effective_json)["zero_optimization"];
    };
    const std::string key = outrigger::format_text("stage3_{}", name);
    const auto section = given("");
    EXPECT_EQ(section[key]["value"].dump(), value) << name;
    EXPECT_EQ(section[key]["origin"], "user") << name;
    EXPECT_FALSE(section.contains(name)) << name;
    EXPECT_EQ(given(outrigger::format_text(R"(, "{}": {})", key, value)), section)
        << name << " and " << key << " with one value";
    const std::string other =
        outrigger::format_text(R"({{"zero_optimization": {{"{}": {}, "{}": {}}}}})", name, value,
                               key, value == "true" ? "false" : "1");
    expect_fault_with(engine_fault(other), OTR_E_CONFIG, {name, key, "two spellings of one key"});
  }
}

TEST(Engine, ParametersOnTheCpuAreWhereTheyAreAnyway) {
  const std::string with =
      R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})";
  EXPECT_EQ(engine_fault(with).text, "");
  EXPECT_FALSE(parse_engine(with, 2).offload_optimizer);
  expect_fault_with(fault_of([&] { (void)parse_engine(with, 2, EngineKind::device); }),
                    OTR_E_UNSUPPORTED,
                    {"offload_param.device = \"cpu\"", "on a device",
                     "use offload_optimizer.device \"cpu\", too"});
  const auto parsed = [](std::string_view optimizer, std::string_view more) {
    return parse_engine(
        outrigger::format_text(
            R"({{"zero_optimization": {{"stage": 3, "offload_param": {{"device": "cpu"{}}},
                 "max_live_parameters": 12345, "offload_optimizer": {{"device": "cpu"{}}}}}}})",
            more, optimizer),
        2, EngineKind::device);
  };
  EXPECT_TRUE(parsed("", "").offload_params);
  EXPECT_EQ(parsed("", "").live_elements, 12345);
  EXPECT_EQ(parsed("", "").pin_params, Pin::prefer);
  EXPECT_EQ(parsed("", R"(, "pin_memory": false)").pin_params, Pin::off);
  EXPECT_EQ(parsed("", R"(, "pin_memory": false)").pin, Pin::prefer);
  EXPECT_FALSE(parse_engine(with, 2).offload_params);
  expect_fault_with(
      fault_of([&] { (void)parsed(R"(, "ratio": 0.5)", ""); }), OTR_E_UNSUPPORTED,
      {"offload_optimizer.ratio = 0.5", "offload_param.device", "set the ratio to 1"});
  expect_fault_with(
      engine_fault(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
      OTR_E_CONFIG, {"offload_param needs sharded parameters", "stage 3"});
  expect_fault_with(
      engine_fault(R"({"zero_optimization": {"stage": 2, "cpu_offload_param": true}})"),
      OTR_E_CONFIG, {"offload_param needs sharded parameters", "stage 3"});
}

// Of what stays on a device a configuration has to be legal as without offload.
TEST(Engine, APartOfTheStatesStaysOnADevice) {
  const auto text = [](std::string_view keys, std::string_view offload) {
    return outrigger::format_text(R"({{{} "zero_optimization": {{"stage": 1{}}}}})", keys, offload);
  };
  const auto with = [](std::string_view ratio) {
    return outrigger::format_text(R"(, "offload_optimizer": {{"device": "cpu", "ratio": {}}})",
                                  ratio);
  };
  const auto parse = [&](std::string_view keys, std::string_view offload) {
    return parse_engine(text(keys, offload), 2, EngineKind::device);
  };
  EXPECT_EQ(parse("", with("0.5")).offload_ratio, 0.5);
  EXPECT_TRUE(parse("", with("0.5")).offload_optimizer);
  EXPECT_FALSE(parse("", with("0")).offload_optimizer);
  EXPECT_EQ(parse("", with("1")).offload_ratio, 1);
  EXPECT_EQ(parse_engine(text("", with("0.5")), 2).offload_ratio, 1) << "on the host";
  const EngineConfig idle = parse("", R"(, "offload_optimizer": {"ratio": 0.5})");
  ASSERT_EQ(idle.warnings.size(), 1U);
  EXPECT_NE(idle.warnings[0].find("ratio = 0.5 has no effect without"), std::string::npos);
  expect_fault_with(fault_of([&] { (void)parse("", with("1.5")); }), OTR_E_CONFIG,
                    {"ratio = 1.5", "from 0 to 1"});
  for (
      const std::string_view keys :
      {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true},)",
       R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},)",
       R"("bf16": {"enabled": true},)", R"("optimizer": {"type": "Lamb"},)",
       R"("optimizer": {"type": "Muon"},)",
       R"("outrigger": {"states": {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}},)",
       R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true},)"}) {
    SCOPED_TRACE(keys);
    for (const char* ratio : {"1", "0.5", "0"}) {
      EXPECT_EQ(fault_of([&] { (void)parse(keys, with(ratio)); }).text, "") << ratio;
    }
  }
  constexpr std::string_view kSplit =
      R"("bf16": {"enabled": true}, "outrigger": {"states": {"master": {"format": "split"}}},)";
  for (const char* ratio : {"1", "0.5"}) {
    expect_fault_with(fault_of([&] { (void)parse(kSplit, with(ratio)); }), OTR_E_UNSUPPORTED,
                      {"master.format = \"split\"", "to \"none\""});
  }
  EXPECT_EQ(fault_of([&] { (void)parse(kSplit, with("0")); }).text, "");
  const auto at_stage0 = [&](std::string_view offload) {
    return fault_of([&] {
      (void)parse_engine(
          outrigger::format_text(R"({{"zero_optimization": {{"stage": 0{}}}}})", offload), 2,
          EngineKind::device);
    });
  };
  EXPECT_EQ(at_stage0(with("0")).text, "");
  EXPECT_EQ(at_stage0(with("0.5")).status, OTR_E_CONFIG);
}

// Where sums are made in host memory.
TEST(Engine, GradientsGoInBlocks) {
  const auto text = [](std::string_view offload) {
    return outrigger::format_text(
        R"({{"zero_optimization": {{"stage": 2, "zero_quantized_gradients": true{}}}}})", offload);
  };
  constexpr std::string_view kOffloaded = R"(, "offload_optimizer": {"device": "cpu"})";
  EXPECT_TRUE(parse_engine(text(""), 2).quantised_gradients);
  EXPECT_FALSE(parse_engine("", 2).quantised_gradients);
  EXPECT_TRUE(parse_engine(text(kOffloaded), 2, EngineKind::device).quantised_gradients);
  for (const std::string_view offload :
       {"", R"(, "offload_optimizer": {"device": "cpu", "ratio": 0.5})"}) {
    expect_fault_with(
        fault_of([&] { (void)parse_engine(text(offload), 2, EngineKind::device); }),
        OTR_E_UNSUPPORTED,
        {"zero_quantized_gradients = true", "on a device", "offload_optimizer.device to \"cpu\""});
  }
}

// At stage 3, wherever parameters and states are.
TEST(Engine, WeightsGoAsIntegers) {
  const auto parse = [](int stage, EngineKind kind, std::string_view more = "") {
    return parse_engine(
        outrigger::format_text(
            R"({{"zero_optimization": {{"stage": {}, "zero_quantized_weights": true{}}}}})", stage,
            more),
        2, kind);
  };
  for (const EngineKind kind : {EngineKind::cpu, EngineKind::device}) {
    EXPECT_TRUE(parse(3, kind).quantised_weights);
    EXPECT_TRUE(parse(3, kind).warnings.empty());
    for (const int stage : {0, 1, 2}) {
      const EngineConfig config = parse(stage, kind);
      EXPECT_FALSE(config.quantised_weights) << stage;
      ASSERT_EQ(config.warnings.size(), 1U);
      EXPECT_NE(config.warnings[0].find("zero_quantized_weights = true has no effect below"),
                std::string::npos)
          << config.warnings[0];
    }
  }
  EXPECT_TRUE(
      parse(3, EngineKind::device,
            R"(, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})")
          .quantised_weights);
  EXPECT_FALSE(parse_engine(R"({"zero_optimization": {"stage": 3}})", 2).quantised_weights);
}

TEST(Engine, ReadsEveryField) {
  const EngineConfig config = parse_engine(R"({
    "gradient_accumulation_steps": 3, "gradient_clipping": 2, "gradient_allreduce_op": "SUM",
    "data_types": {"grad_accum_dtype": "float32"}, "communication_data_type": "fp32",
    "bf16": {"enabled": true, "check_grad_overflow": false},
    "zero_optimization": {"stage": 2.0, "reduce_bucket_size": 5e8},
    "optimizer": {"type": "adam", "params": {"lr": 1, "betas": [0, 0.5], "eps": 1e-6, "weight_decay": 0.1,
                  "bias_correction": false, "adam_w_mode": false}},
    "outrigger": {"seed": 18446744073709551615, "reduction_order": "boundary", "bucket_buffers": 2, "workers": 7,
                  "unused_parameters": "zero", "initial_values": "verify", "compat_version": "0.19.8",
                  "share_parameters": false, "exchange": {"backend": "nccl", "reduction": "nccl"}}})",
                                           2);
  EXPECT_EQ(config.stage, 2);
  EXPECT_EQ(config.compute, Format::bfloat16);
  EXPECT_EQ(config.accumulator, Format::float32);
  EXPECT_EQ(config.accumulation_steps, 3);
  EXPECT_FALSE(config.average);
  EXPECT_FALSE(config.check_overflow);
  EXPECT_EQ(config.bucket_elements, 500000000 / 256 * 256 + 0);
  EXPECT_EQ(config.bucket_elements % 256, 0);
  EXPECT_EQ(config.optimizer.type, "Adam");
  EXPECT_FALSE(config.optimizer.decoupled);
  EXPECT_FALSE(config.optimizer.bias_correction);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.optimizer.beta1, 0.0);
  EXPECT_EQ(config.optimizer.beta2, 0.5);
  EXPECT_EQ(config.optimizer.eps, 1e-6);
  EXPECT_EQ(config.optimizer.weight_decay, 0.1);
  EXPECT_EQ(config.optimizer.gradient_clipping, 2.0);
  EXPECT_EQ(config.optimizer.seed, UINT64_MAX);
  EXPECT_EQ(config.order, Order::boundary);
  EXPECT_EQ(config.bucket_buffers, 2);
  EXPECT_EQ(config.workers, 7);
  EXPECT_EQ(config.unused, Unused::zero);
  EXPECT_EQ(config.initial, Initial::verify);
  EXPECT_FALSE(config.share_parameters);
  EXPECT_EQ(config.backend, Backend::nccl);
  EXPECT_TRUE(config.library_sums);
}

TEST(Engine, RanksExchangeByWayOfTheHostUnlessAsked) {
  const EngineConfig config = parse_engine("{}", 2);
  EXPECT_EQ(config.backend, Backend::host);
  EXPECT_FALSE(config.library_sums);
  EXPECT_FALSE(parse_engine(R"({"outrigger": {"exchange": {"backend": "nccl"}}})", 2).library_sums);
}

TEST(Engine, OrderFollowsTheStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string text =
        outrigger::format_text("{{\"zero_optimization\": {{\"stage\": {}}}}}", stage);
    EXPECT_EQ(parse_engine(text, 2).order, stage < 2 ? Order::boundary : Order::micro_step);
  }
}

TEST(Engine, BucketsAreWholeLeaves) {
  const auto elements = [](std::string_view size) {
    return parse_engine(outrigger::format_text(
                            "{{\"zero_optimization\": {{\"reduce_bucket_size\": {}}}}}", size),
                        1)
        .bucket_elements;
  };
  EXPECT_EQ(elements("0"), 256);
  EXPECT_EQ(elements("1"), 256);
  EXPECT_EQ(elements("256"), 256);
  EXPECT_EQ(elements("257"), 512);
  EXPECT_EQ(elements("9223372036854775807"), INT64_MAX / 256 * 256);
}

TEST(Engine, BatchIsDerivedOrRefused) {
  const auto steps = [](std::string_view text, int32_t world) {
    return parse_engine(text, world).accumulation_steps;
  };
  EXPECT_EQ(steps("{\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 3}", 4), 2);
  EXPECT_EQ(steps("{\"train_batch_size\": 24, \"gradient_accumulation_steps\": 2}", 4), 2);
  EXPECT_EQ(steps("{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 5}", 4),
            5);
  EXPECT_EQ(steps("{\"train_batch_size\": 24}", 4), 1);
  EXPECT_EQ(steps("{\"train_micro_batch_size_per_gpu\": 3}", 4), 1);
  EXPECT_EQ(steps("{\"gradient_accumulation_steps\": 5}", 4), 5);
  EXPECT_EQ(steps("{\"train_batch_size\": null}", 4), 1);
  expect_fault(
      engine_fault("{\"train_batch_size\": 32,\n\"train_micro_batch_size_per_gpu\": 3,\n"
                   "\"gradient_accumulation_steps\": 2}",
                   4),
      OTR_E_CONFIG,
      "line 1, column 22: train_batch_size = 32 is not train_micro_batch_size_per_gpu = 3 (line 2, "
      "column 35) x gradient_accumulation_steps = 2 (line 3, column 32) x world size 4 = 24; "
      "change one of the three, or leave one out to have it derived");
  expect_fault(engine_fault("{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 3}", 4),
               OTR_E_CONFIG,
               "line 1, column 22: train_batch_size = 32 is not a multiple of "
               "train_micro_batch_size_per_gpu = 3 (line 1, column 60) x world size 4 = 12; choose "
               "a multiple of 12");
  expect_fault(engine_fault("{\"train_batch_size\": 2}", 4), OTR_E_CONFIG,
               "line 1, column 22: train_batch_size = 2 is not a multiple of "
               "gradient_accumulation_steps = 1 (derived) x world size 4 = 4; choose a multiple of "
               "4");
  expect_fault_with(engine_fault("{\"train_micro_batch_size_per_gpu\": 2147483647, "
                                 "\"gradient_accumulation_steps\": 2147483647}",
                                 INT32_MAX),
                    OTR_E_CONFIG, {"above 2147483647"});
  EXPECT_EQ(engine_fault("", 0).status, OTR_E_ARGUMENT);
  EXPECT_EQ(engine_fault("", -1).status, OTR_E_ARGUMENT);
}

TEST(Engine, StatesFollowDeepSpeedAndOwnKeys) {
  const auto optimizer = [](std::string_view bf16, std::string_view states, int stage = 1) {
    return parse_engine(
               outrigger::format_text(
                   "{{\"zero_optimization\": {{\"stage\": {}}}, \"bf16\": {}, \"outrigger\": "
                   "{{\"states\": {}}}}}",
                   stage, bf16, states),
               1)
        .optimizer;
  };
  constexpr std::string_view kBoth =
      "{\"enabled\": true, \"bf16_master_weights_and_grads\": true, \"bf16_optimizer_states\": "
      "true}";
  OptimizerConfig o = optimizer(kBoth, "null");
  for (const StateFormat& state : {o.master, o.exp_avg, o.exp_avg_sq}) {
    EXPECT_EQ(state.format, Format::bfloat16);
    EXPECT_EQ(state.rounding, Rounding::nearest);
  }
  o = optimizer(kBoth, "{\"exp_avg_sq\": {\"rounding\": \"stochastic\"}}");
  EXPECT_EQ(o.exp_avg.rounding, Rounding::nearest);
  EXPECT_EQ(o.exp_avg_sq.rounding, Rounding::stochastic);
  o = optimizer("{\"enabled\": true}", "{\"master\": {\"format\": \"bfloat16\"}}");
  EXPECT_EQ(o.master.format, Format::bfloat16);
  EXPECT_EQ(o.master.rounding, Rounding::stochastic);
  EXPECT_EQ(o.exp_avg.format, Format::float32);
  for (int stage = 0; stage <= 3; ++stage) {  // float32 master with mixed moments at every stage
    o = optimizer("{\"enabled\": true}",
                  "{\"exp_avg\": {\"format\": \"bfloat16\", \"rounding\": \"nearest\"}}", stage);
    EXPECT_EQ(o.master.format, Format::float32);
    EXPECT_EQ(o.exp_avg.format, Format::bfloat16);
    EXPECT_EQ(o.exp_avg.rounding, Rounding::nearest);
    EXPECT_EQ(o.exp_avg_sq.format, Format::float32);
  }
  o = optimizer(
      "{\"enabled\": true, \"bf16_master_weights_and_grads\": true}",
      "{\"exp_avg\": {\"format\": \"float32\"}, \"exp_avg_sq\": {\"format\": \"bfloat16\"}}");
  EXPECT_EQ(o.master.rounding, Rounding::nearest);
  EXPECT_EQ(o.exp_avg.format, Format::float32);
  EXPECT_EQ(o.exp_avg_sq.format, Format::bfloat16);
  EXPECT_EQ(o.exp_avg_sq.rounding, Rounding::stochastic);
}

TEST(Engine, WarnsWhereNearestHarms) {
  const auto warnings = [](std::string_view params, std::string_view states) {
    return parse_engine(
               outrigger::format_text(
                   "{{\"zero_optimization\": {{\"stage\": 1}}, \"bf16\": {{\"enabled\": true, "
                   "\"bf16_master_weights_and_grads\": true, \"bf16_optimizer_states\": true}}, "
                   "\"optimizer\": {{\"params\": {}}}, \"outrigger\": {{\"states\": {}}}}}",
                   params, states),
               1)
        .warnings;
  };
  const std::vector<std::string> both = warnings("null", "null");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_NE(both[0].find("outrigger.states.master.rounding"), std::string::npos);
  EXPECT_NE(both[1].find("never shrinks at beta2 0.999"), std::string::npos);
  EXPECT_EQ(warnings("{\"betas\": [0.9, 0.95]}", "null").size(), 1U);  // 0.05 of v is many units
  EXPECT_EQ(warnings("null", "{\"master\": {\"rounding\": \"nearest\"}}").size(), 1U);
  EXPECT_TRUE(warnings("null",
                       "{\"master\": {\"rounding\": \"stochastic\"}, \"exp_avg_sq\": "
                       "{\"rounding\": \"stochastic\"}}")
                  .empty());
  EXPECT_EQ(warnings("{\"fp32_optimizer_states\": true}", "null").size(), 3U);
}

TEST(Engine, WarnsOfWhatItDoesNotActOn) {
  const EngineConfig config = parse_engine(
      "{\"zero_optimization\": {\"stage\": \"auto\", \"cpu_offload\": false}, \"steps_per_print\": "
      "10,\"activation_checkpointing\": {\"profile\": true}, \"torch_autocast\": {\"enabled\": "
      "true, \"dtype\": \"bfloat16\"}, \"wall_clock_breakdown\": false}",
      1);
  ASSERT_EQ(config.warnings.size(), 3U);
  EXPECT_EQ(config.warnings[0],
            "line 1, column 56: zero_optimization.cpu_offload = false is an old key; write "
            "zero_optimization.offload_optimizer.device \"none\"");
  EXPECT_EQ(config.warnings[1],
            "\"auto\" means the default, as in DeepSpeed, at: zero_optimization.stage");
  EXPECT_EQ(config.warnings[2],
            "left to the host framework, the engine does not act on them: steps_per_print, "
            "activation_checkpointing.profile, torch_autocast.enabled");
  const EngineConfig told = parse_engine(
      "{\"steps_per_print\": 10, \"dump_state\": true, \"outrigger\": {\"host_keys\": "
      "[\"steps_per_print\", \"torch_autocast.enabled\"]}}",
      1);
  ASSERT_EQ(told.warnings.size(), 1U);
  EXPECT_EQ(told.warnings[0],
            "left to the host framework, the engine does not act on them: dump_state");
  const EngineConfig old = parse_engine("{\"zero_optimization\": true}", 1);
  EXPECT_EQ(old.stage, 1);
  ASSERT_EQ(old.warnings.size(), 1U);
  EXPECT_EQ(old.warnings[0],
            "line 1, column 23: zero_optimization = true is an old form; write {\"stage\": 1}");
}

TEST(Engine, EffectiveConfigurationHoldsEveryKeyWithItsOrigin) {
  using Tree = nlohmann::ordered_json;
  const std::string text =
      "{\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, \"reduce_bucket_size\": "
      "1000}, \"train_batch_size\": 8, \"bfloat16\": {\"enabled\": true}, \"steps_per_print\": 5}";
  const EngineConfig config = parse_engine(text, 2);
  EXPECT_EQ(config.effective_json, parse_engine(text, 2).effective_json);
  const Tree tree = Tree::parse(config.effective_json);
  size_t leaves = 0;
  for (const Key& key : keys()) {
    if (key.type == Type::section || !key.alias_of.empty()) continue;
    std::string pointer = "/" + std::string(key.path);
    std::ranges::replace(pointer, '.', '/');
    ASSERT_TRUE(tree.contains(Tree::json_pointer(pointer))) << key.path;
    const Tree& leaf = tree.at(Tree::json_pointer(pointer));
    EXPECT_TRUE(leaf.contains("value")) << key.path;
    EXPECT_TRUE(leaf.at("origin") == "user" || leaf.at("origin") == "default" ||
                leaf.at("origin") == "derived");
    ++leaves;
  }
  EXPECT_GT(leaves, 150U);
  EXPECT_EQ(tree.begin().key(), "train_batch_size");
  EXPECT_EQ(tree["zero_optimization"]["stage"].dump(), "{\"value\":2,\"origin\":\"user\"}");
  EXPECT_EQ(tree["bf16"]["enabled"].dump(), "{\"value\":true,\"origin\":\"user\"}");
  EXPECT_EQ(tree["train_micro_batch_size_per_gpu"].dump(), "{\"value\":4,\"origin\":\"derived\"}");
  EXPECT_EQ(tree["gradient_clipping"].dump(), "{\"value\":1.0,\"origin\":\"default\"}");
  EXPECT_EQ(tree["data_types"]["grad_accum_dtype"].dump(),
            "{\"value\":\"bf16\",\"origin\":\"derived\"}");
  EXPECT_EQ(tree["zero_optimization"]["reduce_bucket_size"].dump(),
            "{\"value\":1024,\"origin\":\"derived\"}");
  EXPECT_EQ(tree["outrigger"]["reduction_order"].dump(),
            "{\"value\":\"micro_step\",\"origin\":\"derived\"}");
  EXPECT_EQ(tree["outrigger"]["states"]["master"]["format"].dump(),
            "{\"value\":\"float32\",\"origin\":\"default\"}");
  EXPECT_EQ(tree["zero_optimization"]["overlap_comm"]["note"], "accepted, without effect here");
  EXPECT_EQ(tree["steps_per_print"]["note"], "left to the host framework");
  EXPECT_FALSE(tree.contains("bfloat16"));
}

// Only where no moment is float32 does the derived value say so: given, false would contradict one.
TEST(Engine, DerivesFp32OptimizerStatesAsItIsChecked) {
  const auto derived = [](const char* second) {
    const std::string text = outrigger::format_text(
        R"({{"outrigger": {{"states": {{"exp_avg": {{"format": "bfloat16"}},)"
        R"("exp_avg_sq": {{"format": "{}"}}}}}}}})",
        second);
    const auto tree = nlohmann::json::parse(parse_engine(text, 1).effective_json);
    return tree.at(nlohmann::json::json_pointer("/optimizer/params/fp32_optimizer_states/value"))
        .get<bool>();
  };
  EXPECT_TRUE(derived("float32"));
  EXPECT_FALSE(derived("bfloat16"));
}

}  // namespace
}  // namespace outrigger::config
