// SPDX-License-Identifier: Apache-2.0
// Shards that are trained, saved and loaded: their formats and rules, their steps.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "flat.h"
#include "place.h"
#include "snapshots.h"

namespace otr_test {

struct ShardKind {
  const char* name;
  const char* config;
  const char* dtype = "float32";  // of the weights
  bool split = false, published = false;
  int64_t rows = 0;  // of the first shard
};
inline const ShardKind kShardKinds[] = {
    {"AdamW", R"({"params": {"lr": 0.01, "weight_decay": 0.1}, "gradient_clipping": 0.5})"},
    {"AdamW with a published copy", R"({"params": {"lr": 0.01}})", "float32", false, true},
    {"bf16, stochastic",
     R"({"params": {"lr": 0.01}, "seed": 5, "states": {"master": {"format": "bfloat16",
         "rounding": "stochastic"}, "exp_avg": {"format": "bfloat16"},
         "exp_avg_sq": {"format": "bfloat16"}}})",
     "bfloat16"},
    {"split, 8-bit moments",
     R"({"params": {"lr": 0.01}, "states": {"master": {"format": "split"},
         "exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}})",
     "bfloat16", true},
    {"SGD with momentum, a schedule and outliers",
     R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9},
         "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.001, "warmup_max_lr": 0.3,
         "warmup_num_steps": 40}}, "skip_outlier_norms": {"window": 4, "deviations": 3}})"},
    {"Lamb", R"({"type": "Lamb", "params": {"lr": 0.01}})"},
    {"Muon", R"({"type": "Muon", "params": {"lr": 0.01}})", "float32", false, false, 25},
};

inline constexpr int64_t kShardCounts[] = {1000, 777, 1};
inline constexpr int32_t kStates[] = {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ};

// Three shards, the second of which is stepped twice as often as the others.
class ShardTraining {
 public:
  // seed: of the weights.
  ShardTraining(const ShardKind& kind, double seed)
      : kind_(kind),
        context_(make_context()),
        optimizer_(make_optimizer(context_.get(), kind.config)) {
    for (size_t i = 0; i < std::size(kShardCounts); ++i) {
      names_.push_back("piece." + std::to_string(i));
      add(names_.back(), kShardCounts[i], seed + static_cast<double>(i), i == 0 ? kind.rows : 0);
    }
  }

  [[nodiscard]] otr_optimizer* optimizer() const { return optimizer_.get(); }
  [[nodiscard]] std::vector<otr_shard*> shards() const {
    std::vector<otr_shard*> all;
    for (const auto& shard : shards_) all.push_back(shard.get());
    return all;
  }

  // What the reports and the values are, after some steps whose gradients depend on their numbers.
  std::vector<Values> steps(int from, int to) {
    std::vector<Values> told;
    for (int number = from; number < to; ++number) {
      for (size_t i = 0; i < shards_.size(); ++i) {
        const Values g = irrational(kShardCounts[i], number + 0.3 * static_cast<double>(i),
                                    number % 5 == 0 ? 7 : 0.5);
        for (int64_t e = 0; e < kShardCounts[i]; ++e) {
          set_value(grads_[i]->get(), e, g[static_cast<size_t>(e)]);
        }
      }
      told.push_back(report(step(optimizer_, shards())));
      told.push_back(report(step(optimizer_, {shards_[1].get()})));
    }
    for (Values& value : everything()) told.push_back(std::move(value));
    return told;
  }

  [[nodiscard]] std::vector<Values> everything() const {
    std::vector<Values> all;
    for (size_t i = 0; i < shards_.size(); ++i) {
      for (const int32_t value : kStates) {
        const Tensor out = Tensor::filled({kShardCounts[i]}, 0);
        if (otr_shard_read(shards_[i].get(), value, &out) == OTR_OK) all.push_back(out.values());
      }
      if (kind_.published) all.push_back(published_[i]->values());
      int64_t updates = -1;
      EXPECT_OK(otr_shard_get_step(shards_[i].get(), &updates));
      all.push_back({static_cast<double>(updates)});
    }
    return all;
  }

  [[nodiscard]] int32_t save(const Place& place, const char* tag,
                             const otr_save_options* options = nullptr) const {
    const auto list = shards();
    return otr_optimizer_save(optimizer(), list.data(), count(), place.text(), tag, options);
  }
  [[nodiscard]] int32_t load(const Place& place, const char* tag = nullptr,
                             const otr_load_options* options = nullptr) const {
    const auto list = shards();
    return otr_optimizer_load(optimizer(), list.data(), count(), place.text(), tag, options);
  }
  [[nodiscard]] int32_t take(const Snapshot& into,
                             const otr_snapshot_options* options = nullptr) const {
    const auto list = shards();
    return otr_optimizer_snapshot(optimizer(), list.data(), count(), into.get(), options);
  }
  [[nodiscard]] int32_t restore(const Snapshot& from) const {
    const auto list = shards();
    return otr_optimizer_restore(optimizer(), list.data(), count(), from.get());
  }
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(shards_.size()); }

 private:
  static Values report(const otr_step_report& r) {
    return {static_cast<double>(r.outcome),
            r.lr,
            std::isnan(r.grad_norm) ? -1 : r.grad_norm,
            r.clip_coefficient,
            static_cast<double>(r.micro_steps),
            static_cast<double>(r.applied_steps),
            static_cast<double>(r.skipped_steps)};
  }

  void add(const std::string& name, int64_t count, double seed, int64_t rows) {
    otr_shard_options options;
    EXPECT_OK(otr_shard_options_init(&options, sizeof options));
    options.name = name.c_str();
    options.rows = rows;
    weights_.push_back(
        std::make_unique<Tensor>(Shape{count}, irrational(count, seed), kind_.dtype));
    grads_.push_back(std::make_unique<Tensor>(Tensor::filled({count}, 0)));
    rests_.push_back(std::make_unique<Tensor>(Tensor::filled({count}, 0, "bfloat16")));
    rests_.back()->get().dtype.code = OTR_DTYPE_UINT;
    published_.push_back(std::make_unique<Tensor>(Tensor::filled({count}, 0, "bfloat16")));
    if (kind_.split) options.remainder = &rests_.back()->get();
    if (kind_.published) options.published = &published_.back()->get();
    otr_shard* shard = nullptr;
    EXPECT_OK(otr_shard_wrap(context_.get(), &weights_.back()->get(), &grads_.back()->get(),
                             &options, &shard));
    shards_.emplace_back(shard);
  }

  const ShardKind& kind_;
  Owned<otr_context> context_;
  Owned<otr_optimizer> optimizer_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Tensor>> weights_, grads_, rests_, published_;
  std::vector<Owned<otr_shard>> shards_;
};

}  // namespace otr_test
