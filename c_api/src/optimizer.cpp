// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "c_api/src/handles.h"
#include "core/optimizer/optimizer.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

namespace {

otr_shard_options shard_defaults() {
  otr_shard_options o{};
  o.struct_size = sizeof o;
  return o;
}

}  // namespace

int32_t otr_shard_options_init(otr_shard_options* options, size_t size) noexcept {
  return init_struct(options, size, shard_defaults(), "options");
}

int32_t otr_shard_wrap(otr_context* context, const otr_tensor* weights, const otr_tensor* grads,
                       const otr_shard_options* options, otr_shard** out_shard) noexcept {
  return guard([&] {
    required(out_shard, "out_shard") = nullptr;
    const auto read = read_struct(options, shard_defaults(), "options");
    *out_shard = new otr_shard(
        optimizer::wrap_shard(get(context, "context"), required(weights, "weights"), grads, read));
  });
}

int32_t otr_shard_set_grads(otr_shard* shard, const otr_tensor* grads) noexcept {
  return guard([&] { optimizer::set_grads(*get(shard, "shard"), grads); });
}

int32_t otr_shard_state(otr_shard* shard, int32_t value, otr_tensor* out_tensor) noexcept {
  return guard([&] {
    required(out_tensor, "out_tensor") = {};
    optimizer::Shard& s = *get(shard, "shard");
    *out_tensor = optimizer::state_view(s, value);
  });
}

int32_t otr_shard_read(otr_shard* shard, int32_t value, const otr_tensor* destination) noexcept {
  return guard([&] {
    optimizer::read_shard(*get(shard, "shard"), value, required(destination, "destination"));
  });
}

int32_t otr_shard_write(otr_shard* shard, int32_t value, const otr_tensor* source) noexcept {
  return guard(
      [&] { optimizer::write_shard(*get(shard, "shard"), value, required(source, "source")); });
}

int32_t otr_shard_get_step(const otr_shard* shard, int64_t* out_step) noexcept {
  return guard([&] {
    required(out_step, "out_step") = 0;
    *out_step = get(shard, "shard")->updates;
  });
}

int32_t otr_shard_set_step(otr_shard* shard, int64_t step) noexcept {
  return guard([&] {
    optimizer::Shard& s = *get(shard, "shard");
    constexpr int64_t kMost = int64_t{1} << 53;  // a double counts as far
    if (step < 0 || step > kMost) {
      fail(OTR_E_ARGUMENT, "step = {}; legal is a number from 0 to 2^53", step);
    }
    s.updates = step;
  });
}

int32_t otr_shard_state_bytes(const otr_shard* shard, int64_t* out_bytes) noexcept {
  return guard([&] {
    required(out_bytes, "out_bytes") = 0;
    *out_bytes = get(shard, "shard")->ledger.entries().back().resident;
  });
}

void otr_shard_destroy(otr_shard* shard) noexcept { destroy(shard); }

int32_t otr_optimizer_create(otr_context* context, const char* optimizer_json,
                             otr_optimizer** out_optimizer) noexcept {
  return guard([&] {
    required(out_optimizer, "out_optimizer") = nullptr;
    const auto& kept = get(context, "context");
    *out_optimizer = new otr_optimizer(std::make_shared<optimizer::Optimizer>(
        kept, optimizer_json == nullptr ? "" : optimizer_json));
  });
}

int32_t otr_optimizer_set_value(otr_optimizer* optimizer, const char* name, double value) noexcept {
  return guard([&] { get(optimizer, "optimizer")->set_value(&required(name, "name"), value); });
}

int32_t otr_optimizer_step(otr_optimizer* optimizer, otr_shard* const* shards, int64_t count,
                           otr_step_report* report) noexcept {
  return guard([&] {
    optimizer::Optimizer& o = *get(optimizer, "optimizer");
    const std::vector<optimizer::Shard*> list = shards_of(shards, count);
    fill_output(report, "report", [&](otr_step_report& full) { o.step(list, full); });
  });
}

int32_t otr_optimizer_norm(otr_optimizer* optimizer, otr_shard* const* shards, int64_t count,
                           double* out_norm) noexcept {
  return guard([&] {
    required(out_norm, "out_norm") = 0;
    *out_norm = get(optimizer, "optimizer")->norm(shards_of(shards, count));
  });
}

int32_t otr_optimizer_prepare(otr_optimizer* optimizer, otr_shard* const* shards,
                              int64_t count) noexcept {
  return guard([&] { get(optimizer, "optimizer")->prepare(shards_of(shards, count)); });
}

void otr_optimizer_destroy(otr_optimizer* optimizer) noexcept { destroy(optimizer); }
