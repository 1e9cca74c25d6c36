// SPDX-License-Identifier: Apache-2.0
#include "core/config/relations.h"

#include "core/base/error.h"

namespace outrigger::config {
namespace {

constexpr std::string_view kOptimizerDevice = "zero_optimization.offload_optimizer.device";
constexpr std::string_view kParamDevice = "zero_optimization.offload_param.device";
constexpr std::string_view kRatio = "zero_optimization.offload_optimizer.ratio";

Device device_of(const Values& values, std::string_view path) {
  const std::string word = values.text(path);
  return word == "cpu" ? Device::cpu : word == "nvme" ? Device::nvme : Device::none;
}

void resolve_old_key(Values& values, std::string_view old_key, std::string_view device) {
  if (!values.from_user(old_key) || values.is_null(old_key)) return;
  if (values.from_user(device)) {
    fail(OTR_E_CONFIG, "{} is the older form of {}; keep only the newer one", values.lead(old_key),
         values.name(device));
  }
  const bool on = values.flag(old_key);
  values.warnings.push_back(format_text("{} is an old key; write {} \"{}\"", values.lead(old_key),
                                        device, on ? "cpu" : "none"));
  if (on) values.set(device, "cpu", Origin::derived);
}

void check_sums(const Values& values, int64_t stage) {
  constexpr std::string_view kOp = "gradient_allreduce_op";
  if (stage == 3 && values.text(kOp) == "sum") {
    fail(OTR_E_CONFIG,
         "{} is not legal with zero_optimization.stage 3; use \"mean\", or stage 0 to 2",
         values.lead(kOp));
  }
  // DeepSpeed refuses them there, too.
  constexpr std::string_view kScatter = "zero_optimization.reduce_scatter";
  if (stage < 2 || !values.flag(kScatter) || values.text(kOp) != "mean") return;
  for (const std::string_view key : {"prescale_gradients", "gradient_predivide_factor"}) {
    const bool asks = key == "prescale_gradients" ? values.flag(key) : values.number(key) != 1;
    if (asks) {
      fail(
          OTR_E_CONFIG,
          "{} contradicts {} at zero_optimization.stage {}; leave it out, or set reduce_scatter to "
          "false: the mean is the same either way",
          values.lead(key), values.name(kScatter), stage);
    }
  }
}

// fp32, bf16 or fp16, as the modes choose.
std::string_view compute_dtype(const Values& values) {
  return values.flag("bf16.enabled") ? "bf16" : values.flag("fp16.enabled") ? "fp16" : "fp32";
}

void check_dtypes(Values& values) {
  const std::string_view compute = compute_dtype(values);
  constexpr std::string_view kParam = "data_types.param_dtype";
  if (values.is_null(kParam)) {
    values.set(kParam, std::string(compute), Origin::derived);
  } else if (values.text(kParam) != compute) {
    fail(
        OTR_E_CONFIG,
        "{} contradicts {} and {}, which choose {}; leave it out, or enable the mode of that dtype",
        values.lead(kParam), values.name("bf16.enabled"), values.name("fp16.enabled"), compute);
  }
  constexpr std::string_view kAccumulator = "data_types.grad_accum_dtype";
  if (values.is_null(kAccumulator)) {
    values.set(kAccumulator, std::string(compute), Origin::derived);
  } else if (values.text(kAccumulator) == "fp16" && compute != "fp16") {
    values.not_built.push_back(format_text(
        "{} is recognised but not built yet: use \"fp32\" or \"bf16\"", values.lead(kAccumulator)));
  }
  constexpr std::string_view kSum = "communication_data_type";
  if (values.is_null(kSum)) {
    values.set(kSum, std::string(compute), Origin::derived);
  }
}

}  // namespace

void resolve_mesh(Values& values, int32_t world) {
  constexpr std::string_view kMics = "zero_optimization.mics_shard_size";
  constexpr std::string_view kHpz = "zero_optimization.zero_hpz_partition_size";
  constexpr std::string_view kShard = "outrigger.mesh.shard", kStates = "outrigger.mesh.states";
  const int64_t mics = values.count(kMics), hpz = values.count(kHpz);
  if (mics == 0) {
    fail(OTR_E_CONFIG, "{}: a shard group has at least one rank; -1 means all", values.lead(kMics));
  }
  std::string_view name = kShard;
  const auto is_also = [&](std::string_view key, const char* states) {
    for (const auto& [own, wanted] : {std::pair(kShard, config::Json(values.count(key))),
                                      std::pair(kStates, config::Json(states))}) {
      if (!values.from_user(own) || values.at(own).json == wanted) continue;
      fail(OTR_E_CONFIG, "{} contradicts {}: they are names of one value; keep one of them",
           values.lead(key), values.name(own));
    }
    name = key;
  };
  if (mics > 0) {
    if (hpz > 1) {
      fail(OTR_E_CONFIG, "{} contradicts {}: states are cut over a group, or over all; keep one",
           values.lead(kHpz), values.name(kMics));
    }
    is_also(kMics, "group");
    values.set(kShard, mics, Origin::derived);
  } else if (hpz > 1 && values.count("zero_optimization.stage") < 3) {
    values.warnings.push_back(format_text(
        "{} has no effect below stage 3: every rank has all parameters", values.lead(kHpz)));
  } else if (hpz > 1) {
    is_also(kHpz, "all");
    values.set(kShard, hpz, Origin::derived);
    values.set(kStates, "all", Origin::derived);
  }
  // One rank cuts nothing, whatever the mesh: a job that is tried alone keeps its configuration.
  const int64_t shard = values.count(kShard);
  if (shard > 0 && world > 1 && world % shard != 0) {
    fail(OTR_E_CONFIG,
         "{} does not divide the {} ranks: each group has as many; set a divisor of {}, or leave "
         "it out for one group of all",
         values.lead(name), world, world);
  }
}

void resolve_old_keys(Values& values) {
  resolve_old_key(values, "zero_optimization.cpu_offload", kOptimizerDevice);
  resolve_old_key(values, "zero_optimization.cpu_offload_param", kParamDevice);
}

Combination combination_of(const Values& values) {
  constexpr std::string_view kMaster = "outrigger.states.master.format";
  Combination c;
  c.stage = static_cast<int32_t>(values.count("zero_optimization.stage"));
  c.bf16 = values.flag("bf16.enabled");
  c.fp16 = values.flag("fp16.enabled");
  c.bf16_master = values.flag("bf16.bf16_master_weights_and_grads") ||
                  (!values.is_null(kMaster) && values.text(kMaster) == "bfloat16");
  c.fp16_master = values.flag("fp16.fp16_master_weights_and_grads") ||
                  (!values.is_null(kMaster) && values.text(kMaster) == "float16");
  c.bf16_states = values.flag("bf16.bf16_optimizer_states");
  c.fp16_states = values.flag("fp16.fp16_optimizer_states");
  for (const std::string_view moment :
       {"outrigger.states.exp_avg.format", "outrigger.states.exp_avg_sq.format"}) {
    if (values.is_null(moment)) continue;
    if (values.text(moment) == "float16") c.fp16_states = true;
    if (values.text(moment) == "block8") c.block_states = true;
  }
  c.split_master = !values.is_null(kMaster) && values.text(kMaster) == "split";
  c.offload_optimizer = device_of(values, kOptimizerDevice);
  c.offload_param = device_of(values, kParamDevice);
  constexpr std::string_view kDtype = "torch_autocast.dtype";
  if (values.flag("torch_autocast.enabled")) {
    c.autocast = !values.is_null(kDtype) && values.text(kDtype) == "fp16" ? Autocast::float16
                                                                          : Autocast::bfloat16;
  }
  return c;
}

namespace {

// The user's value that a rule is about: the first of the keys it has a condition on.
std::string place_of(const Values& values, const Rule& rule) {
  const auto is = [&](std::string_view key, std::string_view word) {
    return !values.is_null(key) && values.text(key) == word;
  };
  constexpr std::string_view kMaster = "outrigger.states.master.format";
  constexpr std::string_view kFirst = "outrigger.states.exp_avg.format";
  constexpr std::string_view kSecond = "outrigger.states.exp_avg_sq.format";
  const struct {
    bool in_rule;
    std::string_view key;
  } kParts[] = {
      {rule.fp16_states == Need::yes, "fp16.fp16_optimizer_states"},
      {rule.fp16_states == Need::yes, "outrigger.states.exp_avg.format"},
      {rule.fp16_states == Need::yes, "outrigger.states.exp_avg_sq.format"},
      {rule.split_master == Need::yes && is(kMaster, "split"), kMaster},
      {rule.block_states == Need::yes && is(kFirst, "block8"), kFirst},
      {rule.block_states == Need::yes && is(kSecond, "block8"), kSecond},
      {rule.bf16_states == Need::yes, "bf16.bf16_optimizer_states"},
      {rule.bf16_master == Need::yes, "bf16.bf16_master_weights_and_grads"},
      {rule.bf16_master == Need::yes, "outrigger.states.master.format"},
      {rule.fp16_master == Need::yes, "fp16.fp16_master_weights_and_grads"},
      {rule.fp16_master == Need::yes, "outrigger.states.master.format"},
      {rule.offload_optimizer != Rule{}.offload_optimizer, kOptimizerDevice},
      {rule.offload_optimizer != Rule{}.offload_optimizer, "zero_optimization.cpu_offload"},
      {rule.offload_param != Rule{}.offload_param, kParamDevice},
      {rule.offload_param != Rule{}.offload_param, "zero_optimization.cpu_offload_param"},
      {rule.fp16 == Need::yes, "fp16.enabled"},
  };
  for (const auto& [in_rule, key] : kParts) {
    if (!in_rule || !values.from_user(key)) continue;
    if (values.json(key) != Json::parse(values.at(key).key->fallback)) return values.lead(key);
  }
  return "the configuration";
}

}  // namespace

void apply_legality(Values& values, EngineKind engine) {
  Combination c = combination_of(values);
  const bool with_parameters = engine == EngineKind::device && c.offload_param != Device::none;
  if (c.offload_optimizer == Device::cpu && values.number(kRatio) == 0 && !with_parameters) {
    c.offload_optimizer = Device::none;
  }
  const Rule& rule = judge(c, engine);
  if (rule.verdict == Verdict::legal) return;
  const std::string place = format_text("{} ({})", place_of(values, rule), describe(c));
  if (rule.verdict == Verdict::illegal) {
    fail(OTR_E_CONFIG, "{} is illegal: {}; {}", place, rule.reason, rule.ways_out);
  }
  values.not_built.insert(
      values.not_built.begin(),
      format_text("{} is legal but not built yet: {}; {}", place, rule.reason, rule.ways_out));
}

void check_pairs(Values& values) {
  const int64_t stage = values.count("zero_optimization.stage");
  if (values.given(kRatio) && values.text(kOptimizerDevice) == "none") {
    values.warnings.push_back(
        format_text("{} has no effect without {} \"cpu\"", values.lead(kRatio), kOptimizerDevice));
  }
  check_sums(values, stage);
  check_dtypes(values);
}

namespace {

constexpr std::string_view kTrain = "train_batch_size";
constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
constexpr std::string_view kSteps = "gradient_accumulation_steps";

// total / (factor x world), if that is a whole number.
int64_t divide(const Values& values, int64_t total, int64_t factor, std::string_view factor_key,
               int32_t world) {
  const int64_t divisor = factor * world;  // both below 2^31
  if (total % divisor == 0) return total / divisor;
  fail(OTR_E_CONFIG, "{} is not a multiple of {} x world size {} = {}; choose a multiple of {}",
       values.lead(kTrain), values.name(factor_key), world, divisor, divisor);
}

}  // namespace

void resolve_batch(Values& values, int32_t world) {
  const auto get = [&](std::string_view path) {
    return values.is_null(path) ? int64_t{0} : values.count(path);
  };
  int64_t train = get(kTrain), micro = get(kMicro), steps = get(kSteps);
  const auto derive = [&](std::string_view path, int64_t value) {
    values.set(path, value, Origin::derived);
    return value;
  };
  if (train == 0 && micro == 0) {  // a framework that does not tell its batch
    if (steps == 0) values.set(kSteps, 1, Origin::fallback);
    return;
  }
  if (train != 0 && micro != 0 && steps == 0) {
    steps = derive(kSteps, divide(values, train, micro, kMicro, world));
  } else if (train != 0 && micro == 0) {
    if (steps == 0) steps = derive(kSteps, 1);
    micro = derive(kMicro, divide(values, train, steps, kSteps, world));
  } else if (train == 0) {
    if (steps == 0) steps = derive(kSteps, 1);
    if (micro * steps > INT32_MAX / world) {
      fail(OTR_E_CONFIG, "{} x {} x world size {} is above {}; choose smaller batches",
           values.lead(kMicro), values.name(kSteps), world, INT32_MAX);
    }
    train = derive(kTrain, micro * steps * world);
  }
  if (micro * steps > INT64_MAX / world || micro * steps * world != train) {
    fail(OTR_E_CONFIG,
         "{} is not {} x {} x world size {} = {}; change one of the three, or leave one out to "
         "have it derived",
         values.lead(kTrain), values.name(kMicro), values.name(kSteps), world,
         static_cast<double>(micro) * static_cast<double>(steps) * world);
  }
}

}  // namespace outrigger::config
