// SPDX-License-Identifier: Apache-2.0
#include "core/config/read_schedule.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace outrigger::config {
namespace {

constexpr std::string_view kType = "scheduler.type";
constexpr std::string_view kPrefix = "scheduler.params.";

// Which parameters each type has.
struct Parameters {
  std::string_view name;
  Schedule type;
  std::string_view keys, required;
};
constexpr Parameters kParameters[] = {
    {"WarmupLR", Schedule::warmup, "warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type", ""},
    {"WarmupDecayLR", Schedule::warmup_decay,
     "total_num_steps|warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type", "total_num_steps"},
    {"WarmupCosineLR", Schedule::warmup_cosine,
     "total_num_steps|warmup_min_ratio|warmup_num_steps|warmup_type|cos_min_ratio",
     "total_num_steps"},
    {"OneCycle", Schedule::one_cycle,
     "cycle_min_lr|cycle_max_lr|decay_lr_rate|cycle_first_step_size|cycle_second_step_size|"
     "cycle_first_stair_count|cycle_second_stair_count|decay_step_size|cycle_momentum|"
     "cycle_min_mom|cycle_max_mom|decay_mom_rate",
     "cycle_min_lr|cycle_max_lr"},
    {"LRRangeTest", Schedule::range_test,
     "lr_range_test_min_lr|lr_range_test_step_size|lr_range_test_step_rate|"
     "lr_range_test_staircase",
     ""},
    {"Cosine", Schedule::cosine, "total_num_steps|warmup_num_steps|warmup_min_ratio|min_ratio",
     "total_num_steps"},
    {"WSD", Schedule::wsd,
     "total_num_steps|warmup_num_steps|warmup_min_ratio|decay_num_steps|decay_type|min_ratio",
     "total_num_steps|decay_num_steps"},
};

std::string key_of(std::string_view leaf) { return format_text("{}{}", kPrefix, leaf); }

// Values of scheduler.params.
struct Params {
  const Values& values;
  [[nodiscard]] double number(std::string_view leaf) const { return values.number(key_of(leaf)); }
  [[nodiscard]] int64_t count(std::string_view leaf) const { return values.count(key_of(leaf)); }
  [[nodiscard]] bool flag(std::string_view leaf) const { return values.flag(key_of(leaf)); }
  [[nodiscard]] std::string lead(std::string_view leaf) const { return values.lead(key_of(leaf)); }
  [[nodiscard]] std::string name(std::string_view leaf) const { return values.name(key_of(leaf)); }
};

// The first parameter of the table that asks for something and is not among `keys`; empty if none.
std::string_view foreign(const Values& values, std::string_view keys) {
  const std::vector<std::string> own = split_choices(keys);
  for (const Key& key : config::keys()) {
    if (!key.path.starts_with(kPrefix) || !values.given(key.path)) continue;
    if (std::ranges::find(own, key.path.substr(kPrefix.size())) == own.end()) return key.path;
  }
  return {};
}

// A parameter of another type would be lost without a word.
void check_params(const Values& values, const Parameters& own) {
  if (const std::string_view key = foreign(values, own.keys); !key.empty()) {
    fail(OTR_E_CONFIG, "{} is no parameter of {}, which has {}; leave it out", values.lead(key),
         values.name(kType), fmt::join(split_choices(own.keys), ", "));
  }
  std::vector<std::string> missing;
  for (const std::string& leaf : split_choices(own.required)) {
    if (values.is_null(key_of(leaf))) missing.push_back(key_of(leaf));
  }
  if (!missing.empty()) {
    fail(OTR_E_CONFIG, "{} needs {}; give {}", values.lead(kType), fmt::join(missing, " and "),
         missing.size() == 1 ? "it" : "both");
  }
}

// Where a type's default is not the table's, or another parameter's value.
void set_defaults(Values& values, Schedule type) {
  const auto fallback = [&](std::string_view leaf, const Json& value) {
    if (!values.from_user(key_of(leaf))) values.set(key_of(leaf), value, Origin::fallback);
  };
  const auto follow = [&](std::string_view leaf, std::string_view other) {
    if (values.is_null(key_of(leaf))) {
      values.set(key_of(leaf), values.json(key_of(other)), Origin::derived);
    }
  };
  if (type == Schedule::cosine || type == Schedule::wsd) fallback("warmup_num_steps", 0);
  if (type == Schedule::warmup_decay) fallback("warmup_max_lr", 0.001);
  if (type == Schedule::one_cycle) {
    follow("cycle_second_step_size", "cycle_first_step_size");
    follow("cycle_second_stair_count", "cycle_first_stair_count");
  }
}

void check_steps(const Params& p, Schedule type) {
  const int64_t total = p.count("total_num_steps"), warmup = p.count("warmup_num_steps");
  if (warmup > total) {
    fail(OTR_E_CONFIG,
         "{} is less than {}, so the warm-up would not end; lower warmup_num_steps, or raise "
         "total_num_steps",
         p.lead("total_num_steps"), p.name("warmup_num_steps"));
  }
  if (type == Schedule::wsd && p.count("decay_num_steps") > total - warmup) {
    fail(OTR_E_CONFIG,
         "{} is less than {} and {} together; lower one of these, or raise total_num_steps",
         p.lead("total_num_steps"), p.name("warmup_num_steps"), p.name("decay_num_steps"));
  }
}

void check_order(const Params& p, std::string_view low, std::string_view high) {
  if (p.number(low) > p.number(high)) {
    fail(OTR_E_CONFIG, "{} is more than {}; exchange the two, or leave one out", p.lead(low),
         p.name(high));
  }
}

// A decay in no time is none, which nobody asks for.
void check_decay(const Params& p, std::string_view rate) {
  if (p.number(rate) > 0 && p.count("decay_step_size") == 0) {
    fail(OTR_E_CONFIG, "{} has no effect beside {}; give the step size, or leave the rate out",
         p.lead(rate), p.name("decay_step_size"));
  }
}

bool has_betas(const OptimizerConfig& o) {
  return !o.host && (o.rule == kernels::Rule::adam || o.rule == kernels::Rule::lion ||
                     o.rule == kernels::Rule::lamb);
}

void read_warmup(const Params& p, ScheduleConfig& s) {
  constexpr std::string_view kMax = "scheduler.params.warmup_max_lr";
  s.warmup = p.count("warmup_num_steps");
  const bool own = s.type == Schedule::cosine || s.type == Schedule::wsd;
  const bool linear = own || p.values.text("scheduler.params.warmup_type") == "linear";
  s.warmup_curve = linear ? Curve::linear : Curve::log;
  if (s.type == Schedule::warmup || s.type == Schedule::warmup_decay) {
    s.warmup_min_lr = p.number("warmup_min_lr");
    if (!p.values.is_null(kMax)) {
      check_order(p, "warmup_min_lr", "warmup_max_lr");
      s.warmup_max_lr = p.number("warmup_max_lr");
    }
  } else {
    s.warmup_min_ratio = p.number("warmup_min_ratio");
    s.min_ratio = p.number(own ? "min_ratio" : "cos_min_ratio");
  }
  if (s.type != Schedule::warmup) {
    check_steps(p, s.type);
    s.total = p.count("total_num_steps");
  }
  if (s.type == Schedule::wsd) {
    s.decay = p.count("decay_num_steps");
    const std::string curve = p.values.text("scheduler.params.decay_type");
    s.decay_curve = curve == "linear"   ? Curve::linear
                    : curve == "cosine" ? Curve::cosine
                                        : Curve::sqrt;
  }
}

void read_cycle(Values& values, const OptimizerConfig& optimizer, ScheduleConfig& s) {
  const Params p{values};
  if (!has_betas(optimizer)) {
    for (const std::string_view leaf :
         {"cycle_momentum", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate"}) {
      const bool asks = leaf == "cycle_momentum" ? values.from_user(key_of(leaf)) && p.flag(leaf)
                                                 : values.given(key_of(leaf));
      if (asks) {
        fail(OTR_E_CONFIG, "{} is about beta1, which {} {}; leave it out", p.lead(leaf),
             values.name("optimizer.type"),
             optimizer.rule == kernels::Rule::muon ? "keeps, as in DeepSpeed" : "has not");
      }
    }
    values.set(key_of("cycle_momentum"), false, Origin::derived);
  }
  for (const std::string_view leaf : {"cycle_min_mom", "cycle_max_mom", "decay_mom_rate"}) {
    if (p.flag("cycle_momentum") || !values.given(key_of(leaf))) continue;
    fail(OTR_E_CONFIG, "{} has no effect without {}; leave one of the two out", p.lead(leaf),
         values.name(key_of("cycle_momentum")));
  }
  check_order(p, "cycle_min_lr", "cycle_max_lr");
  check_order(p, "cycle_min_mom", "cycle_max_mom");
  check_decay(p, "decay_lr_rate");
  check_decay(p, "decay_mom_rate");
  s.cycle_min_lr = p.number("cycle_min_lr");
  s.cycle_max_lr = p.number("cycle_max_lr");
  s.decay_lr_rate = p.number("decay_lr_rate");
  s.first = p.count("cycle_first_step_size");
  s.second = p.count("cycle_second_step_size");
  s.first_stairs = p.count("cycle_first_stair_count");
  s.second_stairs = p.count("cycle_second_stair_count");
  s.decay_step_size = p.count("decay_step_size");
  s.cycles_betas = p.flag("cycle_momentum");
  s.cycle_min_mom = p.number("cycle_min_mom");
  s.cycle_max_mom = p.number("cycle_max_mom");
  s.decay_mom_rate = p.number("decay_mom_rate");
}

// DeepSpeed's configurations name a rate twice, mostly the same one.
void warn_of_replaced(Values& values, const ScheduleConfig& s) {
  constexpr std::string_view kBetas = "optimizer.params.betas";
  for (const std::string_view key :
       {"optimizer.params.lr", "optimizer.params.muon_lr", "optimizer.params.adam_lr"}) {
    if (s.is_absolute() && values.from_user(key) && values.number(key) != s.warmup_max_lr) {
      values.warnings.push_back(
          format_text("{} has no effect: {} gives the rate", values.lead(key), values.name(kType)));
    }
  }
  if (s.cycles_betas && values.from_user(kBetas)) {
    values.warnings.push_back(format_text(
        "{} has no effect: {} gives beta1, and 0.99 for beta2, as in DeepSpeed; set {} to false to "
        "keep them",
        values.lead(kBetas), values.name(kType), key_of("cycle_momentum")));
  }
}

}  // namespace

void read_schedule(Values& values, OptimizerConfig& optimizer) {
  ScheduleConfig& s = optimizer.schedule;
  if (values.is_null(kType)) {
    if (const std::string_view key = foreign(values, ""); !key.empty()) {
      fail(OTR_E_CONFIG, "{} is given without {}; give that, {}, or leave the parameters out",
           values.lead(key), kType, legal_values(*find_key(kType)));
    }
    return;
  }
  const Parameters& own = *std::ranges::find(kParameters, values.text(kType), &Parameters::name);
  s.type = own.type;
  s.name = own.name;
  check_params(values, own);
  set_defaults(values, own.type);
  const Params p{values};
  if (s.type == Schedule::one_cycle) {
    read_cycle(values, optimizer, s);
  } else if (s.type == Schedule::range_test) {
    s.range_min_lr = p.number("lr_range_test_min_lr");
    s.range_step_size = p.count("lr_range_test_step_size");
    s.range_rate = p.number("lr_range_test_step_rate");
    s.range_staircase = p.flag("lr_range_test_staircase");
  } else {
    read_warmup(p, s);
  }
  warn_of_replaced(values, s);
}

}  // namespace outrigger::config
