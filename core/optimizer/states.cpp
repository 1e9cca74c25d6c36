// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/states.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace outrigger::optimizer {
namespace {

using kernels::Format;
using memory::Block;
using memory::Pool;
using memory::Purpose;

bool keeps_exp_avg_sq(const config::OptimizerConfig& config, const Shard& shard) {
  return config.keeps_exp_avg_sq() && !is_matrix(config, shard);
}

std::string states_text(bool exp_avg, bool exp_avg_sq) {
  return exp_avg && exp_avg_sq ? "exp_avg and exp_avg_sq"
         : exp_avg             ? "exp_avg"
         : exp_avg_sq          ? "exp_avg_sq"
                               : "no states";
}

void check(const config::OptimizerConfig& config, const Shard& shard, size_t index) {
  const Format m = config.exp_avg.format;
  const Format v = config.exp_avg_sq.format;
  if (config.master_given && config.master.format != shard.master_format()) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") has {} weights, this optimizer's \"states\" ask for a {} master", index,
         shard.name, tensor::name_of(shard.master_format()), tensor::name_of(config.master.format));
  }
  if (shard.has_states && (shard.keeps_exp_avg != config.keeps_exp_avg() ||
                           shard.keeps_exp_avg_sq != keeps_exp_avg_sq(config, shard))) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") has {} from an earlier step with another rule, {} keeps {}: step a "
         "shard with rules of the same states",
         index, shard.name, states_text(shard.keeps_exp_avg, shard.keeps_exp_avg_sq), config.type,
         states_text(config.keeps_exp_avg(), keeps_exp_avg_sq(config, shard)));
  }
  if (config.rule == kernels::Rule::lamb && shard.first_element != 0) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") begins at element {} of its parameter: Lamb needs the norms of whole "
         "parameters, so each shard is one; use an engine for divided ones",
         index, shard.name, shard.first_element);
  }
  if (is_matrix(config, shard) && shard.first_element != 0) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") begins at element {} of its parameter: Muon orthogonalises whole "
         "matrices, so each shard with rows is one; use an engine for divided ones",
         index, shard.name, shard.first_element);
  }
  if (shard.has_states && (shard.exp_avg_format != m || shard.exp_avg_sq_format != v)) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") has states in {} and {} from an earlier step, this optimizer keeps {} "
         "and {}: step a shard with one set of formats",
         index, shard.name, tensor::name_of(shard.exp_avg_format),
         tensor::name_of(shard.exp_avg_sq_format), tensor::name_of(m), tensor::name_of(v));
  }
}

// From here on a state has memory of its own, so that it can be given back alone.
constexpr int64_t kOwnMemory = int64_t{1} << 20;

// One of the two moments.
struct Moment {
  Purpose purpose;
  Format format;
  std::vector<int64_t> bytes;  // of each shard; 0: it keeps none
};

void add_large(std::vector<device::Neighbour>& neighbours, const device::Neighbour& array) {
  if (array.bytes >= device::kLargeArray) neighbours.push_back(array);
}

// Arrays of the caller's that follow one another, as those of a flat buffer do, count as one.
void add_whole(std::vector<device::Neighbour>& neighbours, const std::vector<Shard*>& shards,
               const tensor::View* (*array)(const Shard&)) {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  size_t sum = 0;
  for (const Shard* shard : shards) {
    const tensor::View* view = array(*shard);
    if (view == nullptr || view->count == 0) continue;
    const auto bytes = static_cast<size_t>(kernels::bytes_of(view->count, view->format));
    const auto* data = static_cast<const std::byte*>(view->data);
    begin = begin == nullptr ? data : std::min(begin, data);
    end = end == nullptr ? data + bytes : std::max(end, data + bytes);
    sum += bytes;
  }
  const auto whole = static_cast<size_t>(end - begin);
  if (whole <= sum + sum / 8) add_large(neighbours, {begin, whole});
}

std::vector<Block> blocks_of(const Moment& moment, const std::vector<Shard*>& shards,
                             std::vector<device::Neighbour>& neighbours) {
  int64_t pooled = 0;
  for (const int64_t bytes : moment.bytes) {
    if (bytes < kOwnMemory) pooled += Pool::room_of(bytes);
  }
  Pool pool(moment.purpose, pooled, neighbours);
  add_large(neighbours, pool.whole());
  std::vector<Block> blocks;
  blocks.reserve(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    const int64_t bytes = moment.bytes[i];
    if (bytes < kOwnMemory) {
      blocks.emplace_back(shards[i]->ledger, moment.purpose, bytes, pool);
    } else {
      blocks.emplace_back(shards[i]->ledger, moment.purpose, bytes);
    }
  }
  return blocks;
}

}  // namespace

bool is_matrix(const config::OptimizerConfig& config, const Shard& shard) {
  return config.rule == kernels::Rule::muon && shard.rows > 0;
}

void make_states(const config::OptimizerConfig& config, const std::vector<Shard*>& shards) {
  std::vector<Shard*> fresh;
  for (size_t i = 0; i < shards.size(); ++i) {
    check(config, *shards[i], i);
    if (!shards[i]->has_states) fresh.push_back(shards[i]);
  }
  if (fresh.empty()) return;
  Moment first{Purpose::exp_avg, config.exp_avg.format, {}};
  Moment second{Purpose::exp_avg_sq, config.exp_avg_sq.format, {}};
  for (const Shard* shard : fresh) {
    const int64_t count = shard->weights.count;
    first.bytes.push_back(config.keeps_exp_avg() ? kernels::bytes_of(count, first.format) : 0);
    second.bytes.push_back(
        keeps_exp_avg_sq(config, *shard) ? kernels::bytes_of(count, second.format) : 0);
  }
  std::vector<device::Neighbour> neighbours;
  add_whole(neighbours, fresh, [](const Shard& shard) { return &shard.weights; });
  add_whole(neighbours, fresh,
            [](const Shard& shard) { return shard.grads ? &*shard.grads : nullptr; });
  std::vector<Block> exp_avg = blocks_of(first, fresh, neighbours);
  std::vector<Block> exp_avg_sq = blocks_of(second, fresh, neighbours);
  for (size_t i = 0; i < fresh.size(); ++i) {
    Shard& shard = *fresh[i];
    shard.exp_avg_format = first.format;
    shard.exp_avg_sq_format = second.format;
    shard.exp_avg = std::move(exp_avg[i]);
    shard.exp_avg_sq = std::move(exp_avg_sq[i]);
    shard.keeps_exp_avg = config.keeps_exp_avg();
    shard.keeps_exp_avg_sq = keeps_exp_avg_sq(config, shard);
    shard.has_states = true;
  }
}

}  // namespace outrigger::optimizer
