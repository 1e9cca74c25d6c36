// SPDX-License-Identifier: Apache-2.0
// A short training held against AdamW in float64, whatever else the process does meanwhile.
#include <cmath>

#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"
#include "tests/fuzz/api/tally.h"

namespace otr_fuzz {
namespace {

constexpr double kLr = 0.0625, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8, kDecay = 0.125;
constexpr double kBound = 1e-5;  // of values of about 1, after a few float32 steps

struct Reference {
  std::vector<double> w, m, v;
  int steps = 0;

  void step(const float* grad) {
    ++steps;
    const double correction1 = 1 - std::pow(kBeta1, steps),
                 correction2 = 1 - std::pow(kBeta2, steps);
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = grad[i];
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
      w[i] -= kLr * kDecay * w[i];
      w[i] -= kLr * (m[i] / correction1) / (std::sqrt(v[i] / correction2) + kEps);
    }
  }
};

// One step. False: a call failed, on another rank's account maybe.
bool train(Rank& rank, Bytes& bytes, otr_engine* engine, Where where, const Shape& shape,
           Reference& reference) {
  Out<otr_pass*> pass;
  if (CALL(rank, otr_pass_begin, engine, nullptr, 0, nullptr, pass) != OTR_OK) return false;
  // Copied on the stream that the gradient is given with, and overwritten there right after.
  std::vector<uint8_t> values, after;
  const Sample grad = make_sample(bytes, where, shape, "float32");  // waits for them at its end
  values = draw_values(bytes, grad.tensor, false);
  after = draw_values(bytes, grad.tensor, true);
  const Sample out = make_sample(bytes, nullptr, shape, "float32");
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_stream(bytes, where, info);
  const bool later =
      given != nullptr && given->stream == where->stream() && grad.tensor.data != nullptr;
  if (later) {
    where->copy_later(grad.tensor, values);
  } else {
    put(where, grad.tensor, values);
  }
  otr_step_report report = OTR_STEP_REPORT_INIT;
  bool done = CALL(rank, otr_pass_add_grad, pass.value, 0, &grad.tensor, given) == OTR_OK;
  if (later) where->copy_later(grad.tensor, after);
  done = done && CALL(rank, otr_pass_end, pass.value) == OTR_OK &&
         CALL(rank, otr_engine_step, engine, &report) == OTR_OK &&
         CALL(rank, otr_engine_parameter_read, engine, 0, OTR_VALUE_MASTER, &out.tensor) == OTR_OK;
  GIVE_BACK(rank, otr_pass_destroy, pass.value);
  if (!done) return false;
  steps_done.add(where);
  reference.step(reinterpret_cast<const float*>(values.data()));
  const auto* weights = static_cast<const float*>(out.tensor.data);
  for (size_t i = 0; i < reference.w.size(); ++i) {
    if (std::abs(static_cast<double>(weights[i]) - reference.w[i]) > kBound) {
      broken(outrigger::format_text("step {}: weight {} is {}, AdamW makes {}", reference.steps, i,
                                    weights[i], reference.w[i]));
    }
  }
  return true;
}

void train_and_compare(Rank& rank, Bytes& bytes) {
  otr_comm* comm = rank.comms.pick(bytes).handle;
  const uint32_t stage = bytes.below(4);
  const bool offloads = bytes.one_in(2) && stage > 0, on_device = bytes.one_in(2);
  const bool offloads_all = offloads && stage == 3 && bytes.one_in(2);
  const std::string text = outrigger::format_text(
      R"({{"optimizer": {{"type": "AdamW", "params": {{"lr": {}, "weight_decay": {}}}}}, )"
      R"("gradient_clipping": 0, "zero_optimization": {{"stage": {}, "reduce_bucket_size": 256{}{}}}}})",
      kLr, kDecay, stage, offloads ? R"(, "offload_optimizer": {"device": "cpu"})" : "",
      offloads_all ? R"(, "offload_param": {"device": "cpu"})" : "");
  const Shape shape = {1 + static_cast<int64_t>(bytes.below(600))};
  const uint32_t steps = 1 + bytes.below(4);
  const Sample initial = make_sample(bytes, nullptr, shape, "float32");
  fill(bytes, nullptr, initial.tensor, false);
  EnginePlace place;
  Out<otr_engine*> engine;
  Out<int64_t> id;
  if (CALL(rank, otr_engine_create, comm, text.c_str(), engine) != OTR_OK) return;
  place.handle = engine.value;
  if (on_device) put_on_device(rank, bytes, place);
  const auto* first = static_cast<const float*>(initial.tensor.data);
  const auto count = static_cast<size_t>(shape[0]);
  Reference reference{
      {first, first + count}, std::vector<double>(count), std::vector<double>(count)};
  bool going = CALL(rank, otr_engine_add_parameter, engine.value, "w", &initial.tensor, nullptr,
                    id) == OTR_OK &&
               CALL(rank, otr_engine_commit, engine.value) == OTR_OK;
  for (uint32_t i = 0; i < steps && going; ++i) {
    going = train(rank, bytes, place.handle, place.model->where, shape, reference);
  }
  rank.drop(place);
}

constexpr Call kCalls[] = {{"train and compare", Scope::collective, 3, train_and_compare}};

}  // namespace

std::span<const Call> model_calls() { return kCalls; }

}  // namespace otr_fuzz
