// SPDX-License-Identifier: Apache-2.0
// A flat piece of parameters with its states, without an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/context/context.h"
#include "core/memory/block.h"
#include "core/tensor/tensor.h"

namespace outrigger::optimizer {

// The caller owns weights, gradients and the published copy; the shard owns the states.
struct Shard {
  std::shared_ptr<Context> context;
  tensor::View weights;
  std::optional<tensor::View> grads;
  std::optional<tensor::View> published;
  bool is_split = false;
  uint16_t* remainder = nullptr;  // of a split master: the other half; null without elements
  std::string name;
  int64_t first_element = 0;
  int64_t rows = 0;  // of a matrix; 0: none

  memory::Ledger ledger;
  [[nodiscard]] kernels::Format master_format() const {
    return is_split ? kernels::Format::split : weights.format;
  }
  kernels::Format exp_avg_format{}, exp_avg_sq_format{};  // once the states exist
  memory::Block exp_avg, exp_avg_sq;
  // Of a moment in a block format; null of another.
  [[nodiscard]] float* scales_of(const memory::Block& moment, kernels::Format format) const {
    return kernels::scales_behind(moment.data(), weights.count, format);
  }
  bool has_states = false, keeps_exp_avg = false, keeps_exp_avg_sq = false;
  int64_t updates = 0;
};

// Checks dtypes, shapes and counts.
[[nodiscard]] std::shared_ptr<Shard> wrap_shard(std::shared_ptr<Context> context,
                                                const otr_tensor& weights, const otr_tensor* grads,
                                                const otr_shard_options& options);
// grads: null for none.
void set_grads(Shard& shard, const otr_tensor* grads);

// A value of a shard: where it is stored, and how. beside: of a composed format.
struct StoredValue {
  std::byte* data;
  kernels::Format format;
  std::byte* beside = nullptr;
};
// OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG or OTR_VALUE_EXP_AVG_SQ.
[[nodiscard]] StoredValue stored_value(const Shard& shard, int32_t value);
// Where the weights were written: their published copy follows.
void publish(const Shard& shard);

// A 1-D view of a moment, as it is stored.
[[nodiscard]] otr_tensor state_view(const Shard& shard, int32_t value);
// Copies a value out or in; see otr_shard_read.
void read_shard(const Shard& shard, int32_t value, const otr_tensor& out);
void write_shard(Shard& shard, int32_t value, const otr_tensor& source);

}  // namespace outrigger::optimizer
