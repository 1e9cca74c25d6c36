// SPDX-License-Identifier: Apache-2.0
// Backward passes.
#include <thread>

#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"
#include "tests/fuzz/api/tally.h"

namespace otr_fuzz {
namespace {

struct Outputs {
  std::vector<Sample> samples;
  std::vector<otr_tensor> tensors;
  std::vector<Shape> shapes;
};

Outputs draw_outputs(Bytes& bytes, Where where) {
  Outputs drawn;
  for (uint32_t left = bytes.below(8) % 4; left > 0; --left) {
    drawn.samples.push_back(draw_doubtful(bytes, where, draw_shape(bytes), Use::declaration));
    const otr_tensor& t = drawn.samples.back().tensor;
    drawn.tensors.push_back(t);
    const bool whole = t.ndim >= 0 && t.ndim <= 64 && (t.ndim == 0 || t.shape != nullptr);
    drawn.shapes.push_back(whole ? Shape(t.shape, t.shape + t.ndim) : Shape());
  }
  return drawn;
}

void begin(Rank& rank, Bytes& bytes) {
  PassPlace& place = rank.passes.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  const EnginePlace& engine = rank.engines.pick(bytes);
  const Where where = engine.model->where;
  const Outputs outputs = draw_outputs(bytes, where);
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_call_info(bytes, where, info);
  const auto count = static_cast<int64_t>(outputs.tensors.size()) - (bytes.one_in(64) ? 4 : 0);
  Out<otr_pass*> out(bytes);
  if (CALL(rank, otr_pass_begin, engine.handle,
           count == 0 || bytes.one_in(64) ? nullptr : outputs.tensors.data(), count, given,
           out) != OTR_OK) {
    return;
  }
  place = {out.value, engine.model, outputs.shapes, {}};
  ++place.model->passes;
}

void output_grad(Rank& rank, Bytes& bytes) {
  const PassPlace& place = rank.passes.pick(bytes);
  const int64_t index = bytes.one_in(8) ? -1 : bytes.below(4);
  Out<otr_tensor> out(bytes);
  if (CALL(rank, otr_pass_get_output_grad, place.handle, index, out) != OTR_OK) return;
  const otr_tensor& t = out.value;
  if (Shape(t.shape, t.shape + t.ndim) != place.outputs.at(static_cast<size_t>(index))) {
    broken("an output's gradient has another shape");
  }
  touch(place.model->where, t);
  fill(bytes, place.model->where, t, false);  // the host may overwrite it
}

void queries(Rank& rank, Bytes& bytes) {
  const PassPlace& place = rank.passes.pick(bytes);
  Out<double> scale(bytes);
  Out<int64_t> index(bytes);
  if (CALL(rank, otr_pass_get_scale, place.handle, scale) == OTR_OK && !(scale.value > 0)) {
    broken(outrigger::format_text("a pass has the scale {}", scale.value));
  }
  CALL(rank, otr_pass_get_seed_overflow, place.handle, index);
  otr_call_info tag;
  otr_call_info_init(&tag, sizeof tag);
  if (bytes.one_in(32)) tag.struct_size = 4;
  CALL(rank, otr_pass_get_tag, place.handle, bytes.one_in(64) ? nullptr : &tag);
}

void unscale(Rank& rank, Bytes& bytes) {
  const PassPlace& place = rank.passes.pick(bytes);
  const Shape shape = draw_shape(bytes);
  const Sample grad = draw_doubtful(bytes, place.model->where, shape, Use::output);
  const Sample other = draw_doubtful(bytes, place.model->where, shape, Use::output);
  const bool same = bytes.one_in(4);
  CALL(rank, otr_pass_unscale, place.handle, &grad.tensor, same ? &grad.tensor : &other.tensor);
}

void slot(Rank& rank, Bytes& bytes) {
  PassPlace& place = rank.passes.pick(bytes);
  const DrawnParameter p = draw_parameter(bytes, *place.model);
  Out<otr_tensor> out(bytes);
  if (CALL(rank, otr_pass_get_slot, place.handle, p.id, out) != OTR_OK) return;
  const otr_tensor& t = out.value;
  const otr_dtype dtype = dtype_named(place.model->compute);
  if (Shape(t.shape, t.shape + t.ndim) != p.shape || t.dtype.bits != dtype.bits ||
      t.dtype.code != dtype.code) {
    broken(outrigger::format_text("the slot of parameter {} has another form", p.id));
  }
  expect_at(place.model->where, t);
  fill(bytes, place.model->where, t, bytes.one_in(32));
  place.slots.push_back({p.id, t});
}

// A slot, to its own parameter mostly; or a tensor.
void add_grad(Rank& rank, Bytes& bytes) {
  PassPlace& place = rank.passes.pick(bytes);
  const DrawnParameter p = draw_parameter(bytes, *place.model);
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_call_info(bytes, place.model->where, info);
  const bool hands_slot = !bytes.one_in(3), wrong = bytes.one_in(16);
  const Sample sample = draw_doubtful(bytes, place.model->where, p.shape, Use::source);
  if (hands_slot && !place.slots.empty()) {
    const PassPlace::Slot last = place.slots.back();
    if (CALL(rank, otr_pass_add_grad, place.handle, wrong ? p.id : last.id, &last.tensor, given) ==
            OTR_OK &&
        (!wrong || p.id == last.id)) {
      place.slots.pop_back();
    }
    return;
  }
  CALL(rank, otr_pass_add_grad, place.handle, p.id, bytes.one_in(64) ? nullptr : &sample.tensor,
       given);
}

// Two threads add at once; the one also asks for slots.
void add_from_two_threads(Rank& rank, Bytes& bytes) {
  PassPlace& place = rank.passes.pick(bytes);
  const DrawnParameter p = draw_parameter(bytes, *place.model);
  const DrawnParameter q = draw_parameter(bytes, *place.model);
  const Sample first = draw_sample(bytes, place.model->where, p.shape, Use::source);
  const Sample second = draw_sample(bytes, place.model->where, q.shape, Use::source);
  std::thread helper([&] {
    Out<double> scale;
    CALL(rank, otr_pass_add_grad, place.handle, p.id, &first.tensor, nullptr);
    CALL(rank, otr_pass_get_scale, place.handle, scale);
  });
  Out<otr_tensor> own;
  if (CALL(rank, otr_pass_get_slot, place.handle, q.id, own) == OTR_OK) {
    fill(bytes, place.model->where, own.value, false);
    CALL(rank, otr_pass_add_grad, place.handle, q.id, &own.value, nullptr);
  }
  CALL(rank, otr_pass_add_grad, place.handle, q.id, &second.tensor, nullptr);
  helper.join();
  // What was handed back is the library's, whichever thread's call it was.
  std::erase_if(place.slots, [&](const PassPlace::Slot& s) { return s.id == q.id; });
}

void end(Rank& rank, Bytes& bytes) {
  PassPlace& place = rank.passes.pick(bytes);
  if (CALL(rank, otr_pass_end, place.handle) != OTR_OK) return;
  passes_ended.add(place.model->where);
  place.slots.clear();
}

void abandon(Rank& rank, Bytes& bytes) {
  PassPlace& place = rank.passes.pick(bytes);
  if (CALL(rank, otr_pass_abandon, place.handle) == OTR_OK) place.slots.clear();
}

void destroy(Rank& rank, Bytes& bytes) { rank.drop(rank.passes.pick(bytes)); }

struct Backward {
  Rank& rank;
  Bytes& bytes;
  const Model& model;
};

int32_t vjp(otr_pass* pass, const otr_tensor* output_grads, int64_t count, void* user_data) {
  auto& [rank, bytes, model] = *static_cast<Backward*>(user_data);
  for (int64_t i = 0; i < count; ++i) touch(model.where, output_grads[i]);
  for (size_t id = 0; id < model.parameters.size(); ++id) {
    const Sample grad = draw_doubtful(bytes, model.where, model.parameters[id].shape, Use::source);
    CALL(rank, otr_pass_add_grad, pass, static_cast<int64_t>(id), &grad.tensor, nullptr);
  }
  return bytes.one_in(8) ? 5 : 0;
}

void backward(Rank& rank, Bytes& bytes) {
  const EnginePlace& engine = rank.engines.pick(bytes);
  const Outputs outputs = draw_outputs(bytes, engine.model->where);
  const std::shared_ptr<Model> model = engine.model;
  Backward host{rank, bytes, *model};
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_stream(bytes, model->where, info);
  if (CALL(rank, otr_engine_backward, engine.handle, outputs.tensors.data(),
           static_cast<int64_t>(outputs.tensors.size()), given, bytes.one_in(32) ? nullptr : vjp,
           static_cast<void*>(&host)) == OTR_OK) {
    passes_ended.add(model->where);
  }
}

constexpr Call kCalls[] = {{"pass begin", Scope::local, 9, begin},
                           {"pass output grad", Scope::local, 2, output_grad},
                           {"pass queries", Scope::local, 1, queries},
                           {"pass unscale", Scope::local, 1, unscale},
                           {"pass slot", Scope::local, 6, slot},
                           {"pass add grad", Scope::local, 10, add_grad},
                           {"pass add from two threads", Scope::local, 3, add_from_two_threads},
                           {"pass end", Scope::local, 7, end},
                           {"pass abandon", Scope::local, 1, abandon},
                           {"pass destroy", Scope::local, 2, destroy},
                           {"backward", Scope::local, 4, backward}};

}  // namespace

std::span<const Call> pass_calls() { return kCalls; }

}  // namespace otr_fuzz
