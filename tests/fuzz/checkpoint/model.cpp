// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/checkpoint/model.h"

#include <stdexcept>

#include "c_api/src/handles.h"

namespace otr_fuzz_checkpoint {
namespace {

std::vector<int64_t> kShapes[kParameters] = {{600}, {3, 5}, {300}, {600}};

constexpr const char* kComposed =
    R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1, "reduce_bucket_size": 512},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.03}},
        "outrigger": {"states": {"master": {"format": "split"}, "exp_avg": {"format": "block8"},
        "exp_avg_sq": {"format": "block8"}}}})";
constexpr const char* kPlain =
    R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 512},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.03}}})";

// A tensor's shape is not const.
otr_tensor tensor_of(std::vector<float>& values, std::vector<int64_t>& shape) {
  otr_tensor tensor;
  need(otr_tensor_init(values.data(), "float32", static_cast<int32_t>(shape.size()), shape.data(),
                       &tensor));
  return tensor;
}

std::vector<float> pattern(int64_t id, float factor) {
  int64_t count = 1;
  for (const int64_t extent : kShapes[id]) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = factor * (static_cast<float>((i * 7 + static_cast<size_t>(id)) % 23) - 11);
  }
  return values;
}

}  // namespace

void need(int32_t status) {
  if (status != OTR_OK) throw std::logic_error(otr_last_error_message());
}

otr_comm* self_comm() {
  static otr_comm* const comm = [] {
    otr_context* context = nullptr;
    otr_comm* made = nullptr;
    need(otr_context_create(nullptr, &context));
    need(otr_comm_create_self(context, &made));
    otr_context_destroy(context);
    return made;
  }();
  return comm;
}

Model::Model(otr_comm* comm, Kind kind, float first) {
  need(otr_engine_create(comm, kind == Kind::composed ? kComposed : kPlain, &engine_));
  for (int64_t id = 0; id < kParameters; ++id) {
    std::vector<float> values = pattern(id, first);
    const otr_tensor initial = tensor_of(values, kShapes[id]);
    otr_param_options options;
    need(otr_param_options_init(&options, sizeof options));
    options.trainable = id == 2 ? 0 : 1;
    if (id == 3) options.alias_of = 0;
    int64_t given = 0;
    need(otr_engine_add_parameter(engine_, kNames[id], &initial, &options, &given));
  }
  need(otr_engine_commit(engine_));
}

void Model::step() {
  otr_pass* pass = nullptr;
  need(otr_pass_begin(engine_, nullptr, 0, nullptr, &pass));
  for (const int64_t id : {0, 1}) {
    std::vector<float> values = pattern(id, 0.25F);
    const otr_tensor grad = tensor_of(values, kShapes[id]);
    need(otr_pass_add_grad(pass, id, &grad, nullptr));
  }
  need(otr_pass_end(pass));
  otr_pass_destroy(pass);
  need(otr_engine_step(engine_, nullptr));
}

outrigger::engine::Engine& Model::engine() const {
  return *outrigger::c_api::get(engine_, "engine");
}

Values Model::values() const {
  Values all;
  for (int64_t id = 0; id < 3; ++id) {
    for (const int32_t value :
         {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ, OTR_VALUE_PUBLISHED}) {
      std::vector<float> values = pattern(id, 0);
      const otr_tensor out = tensor_of(values, kShapes[id]);
      const int32_t status = otr_engine_parameter_read(engine_, id, value, &out);
      if (status == OTR_E_NOT_FOUND) continue;
      need(status);
      all[std::string(kNames[id]) + "/" + std::to_string(value)] = values;
    }
  }
  return all;
}

}  // namespace otr_fuzz_checkpoint
