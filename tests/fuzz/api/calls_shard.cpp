// SPDX-License-Identifier: Apache-2.0
// Shards and optimizers, without an engine.
#include "tests/fuzz/api/calls.h"
#include "tests/fuzz/api/configuration.h"

namespace otr_fuzz {
namespace {

void wrap(Rank& rank, Bytes& bytes) {
  ShardPlace& place = rank.shards.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  const Shape shape = {bytes.one_in(16) ? 0 : static_cast<int64_t>(bytes.below(700))};
  ShardPlace made;
  made.weights = make_sample(bytes, nullptr, shape, kDtypes[bytes.below(3)]);
  made.grads = bytes.one_in(8) ? draw_doubtful(bytes, nullptr, shape, Use::source)
                               : make_sample(bytes, nullptr, shape, kDtypes[bytes.below(3)]);
  Roomy<otr_shard_options> options;
  CALL(rank, otr_shard_options_init, &options, sizeof(otr_shard_options));
  if (bytes.one_in(3)) {
    made.published = draw_doubtful(bytes, nullptr, shape, Use::output);
    options.published = &made.published.tensor;
  }
  if (bytes.one_in(4)) {
    made.remainder = make_sample(bytes, nullptr, shape, kDtypes[bytes.below(3)]);
    made.remainder.tensor.dtype = {
        bytes.one_in(8) ? uint8_t{OTR_DTYPE_FLOAT} : uint8_t{OTR_DTYPE_UINT},
        made.remainder.tensor.dtype.bits, 1};
    options.remainder = &made.remainder.tensor;
  }
  if (bytes.one_in(4)) options.name = "named";
  constexpr int64_t kFirst[] = {0, 256, 255, -1, INT64_MAX, int64_t{1} << 40};
  if (bytes.one_in(4)) options.first_element = bytes.pick(kFirst);
  constexpr int64_t kRows[] = {1, 2, 7, -1, INT64_MAX};
  if (bytes.one_in(3)) options.rows = bytes.one_in(2) ? shape[0] : bytes.pick(kRows);
  if (bytes.one_in(32)) options.mistake_size(bytes);
  Out<otr_shard*> out(bytes);
  if (CALL(rank, otr_shard_wrap, rank.contexts.pick(bytes).handle,
           bytes.one_in(32) ? nullptr : &made.weights.tensor,
           bytes.one_in(32) ? nullptr : &made.grads.tensor, bytes.one_in(4) ? nullptr : &options,
           out) == OTR_OK) {
    made.handle = out.value;
    place = made;
  }
}

void set_grads(Rank& rank, Bytes& bytes) {
  ShardPlace& place = rank.shards.pick(bytes);
  const Shape shape = {place.handle == nullptr ? 3 : place.weights.tensor.shape[0]};
  Sample grads = bytes.one_in(8) ? draw_doubtful(bytes, nullptr, shape, Use::source)
                                 : make_sample(bytes, nullptr, shape, kDtypes[bytes.below(3)]);
  const bool none = bytes.one_in(8);
  if (CALL(rank, otr_shard_set_grads, place.handle, none ? nullptr : &grads.tensor) == OTR_OK &&
      !none) {
    place.grads = grads;
  }
}

void state(Rank& rank, Bytes& bytes) {
  otr_shard* shard = rank.shards.pick(bytes).handle;
  const auto value = static_cast<int32_t>(bytes.below(6));
  Out<otr_tensor> out(bytes);
  Out<int64_t> size(bytes);
  if (CALL(rank, otr_shard_state, shard, value, out) == OTR_OK) touch(nullptr, out.value);
  CALL(rank, otr_shard_state_bytes, shard, size);
  Out<int64_t> updates(bytes);
  CALL(rank, otr_shard_get_step, shard, updates);
  constexpr int64_t kSteps[] = {0, 1, 1000, -1, INT64_MAX};
  if (bytes.one_in(4)) CALL(rank, otr_shard_set_step, shard, bytes.pick(kSteps));
}

void copy(Rank& rank, Bytes& bytes) {
  const ShardPlace& place = rank.shards.pick(bytes);
  const Shape shape = {place.handle == nullptr ? 3 : place.weights.tensor.shape[0]};
  const auto value = static_cast<int32_t>(bytes.below(6));
  if (bytes.one_in(2)) {
    Sample out = draw_doubtful(bytes, nullptr, shape, Use::output);
    CALL(rank, otr_shard_read, place.handle, value, &out.tensor);
  } else {
    Sample source = draw_doubtful(bytes, nullptr, shape, Use::source);
    CALL(rank, otr_shard_write, place.handle, value, &source.tensor);
  }
}

void create(Rank& rank, Bytes& bytes) {
  OptimizerPlace& place = rank.optimizers.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  const std::string text = draw_optimizer(bytes);
  Out<otr_optimizer*> out(bytes);
  if (CALL(rank, otr_optimizer_create, rank.contexts.pick(bytes).handle,
           bytes.one_in(8) ? nullptr : text.c_str(), out) == OTR_OK) {
    place.handle = out.value;
  }
}

void set_value(Rank& rank, Bytes& bytes) {
  constexpr const char* kNames[] = {"lr",   "eps",  "beta1", "weight_decay", "gradient_factor",
                                    "none", nullptr};
  constexpr double kValues[] = {0, 0.5, -1, 1, 1e300};
  otr_optimizer* optimizer = rank.optimizers.pick(bytes).handle;
  const char* name = bytes.pick(kNames);
  CALL(rank, otr_optimizer_set_value, optimizer, name, bytes.pick(kValues));
}

void step(Rank& rank, Bytes& bytes) {
  std::vector<otr_shard*> shards;
  for (uint32_t left = bytes.below(4); left > 0; --left) {
    ShardPlace& place = rank.shards.pick(bytes);
    shards.push_back(place.handle);
    if (place.handle == nullptr) continue;
    Sample& grads = place.grads;
    if (grads.tensor.strides == nullptr) fill(bytes, nullptr, grads.tensor, bytes.one_in(16));
  }
  otr_step_report report = OTR_STEP_REPORT_INIT;
  const auto count = static_cast<int64_t>(shards.size()) - (bytes.one_in(64) ? 4 : 0);
  if (bytes.one_in(4)) {
    CALL(rank, otr_optimizer_prepare, rank.optimizers.pick(bytes).handle, shards.data(), count);
  }
  if (bytes.one_in(4)) {
    Out<double> norm(bytes);
    CALL(rank, otr_optimizer_norm, rank.optimizers.pick(bytes).handle, shards.data(), count, norm);
  }
  CALL(rank, otr_optimizer_step, rank.optimizers.pick(bytes).handle, shards.data(), count,
       bytes.one_in(8) ? nullptr : &report);
}

void destroy_shard(Rank& rank, Bytes& bytes) { rank.drop(rank.shards.pick(bytes)); }
void destroy_optimizer(Rank& rank, Bytes& bytes) { rank.drop(rank.optimizers.pick(bytes)); }

constexpr Call kCalls[] = {{"shard wrap", Scope::local, 6, wrap},
                           {"shard set grads", Scope::local, 2, set_grads},
                           {"shard state", Scope::local, 2, state},
                           {"shard copy", Scope::local, 3, copy},
                           {"optimizer create", Scope::local, 4, create},
                           {"optimizer set value", Scope::local, 1, set_value},
                           {"optimizer step", Scope::local, 6, step},
                           {"shard destroy", Scope::local, 1, destroy_shard},
                           {"optimizer destroy", Scope::local, 1, destroy_optimizer}};

}  // namespace

std::span<const Call> shard_calls() { return kCalls; }

}  // namespace otr_fuzz
