// SPDX-License-Identifier: Apache-2.0
// Parameters as the host computes with them: acquire, release, prefetch, freeze; and states that
// leave a device for a while.
#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

struct Ids {
  std::vector<int64_t> ids;
  std::vector<Shape> shapes;
};

Ids draw_ids(Bytes& bytes, const Model& model) {
  Ids drawn;
  for (uint32_t left = bytes.below(4); left > 0; --left) {
    const DrawnParameter p = draw_parameter(bytes, model);
    drawn.ids.push_back(p.id);
    drawn.shapes.push_back(p.shape);
  }
  return drawn;
}

int64_t draw_count(Bytes& bytes, const Ids& drawn) {
  return bytes.one_in(64) ? -1 : static_cast<int64_t>(drawn.ids.size());
}

}  // namespace

void acquire(Rank& rank, Bytes& bytes, EnginePlace& place) {
  const Ids drawn = draw_ids(bytes, *place.model);
  const int64_t count = draw_count(bytes, drawn);
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_call_info(bytes, place.model->where, info);
  std::vector<otr_tensor> tensors(drawn.ids.size());
  for (otr_tensor& t : tensors) std::memset(static_cast<void*>(&t), 0xA5, sizeof t);
  const int32_t status =
      CALL(rank, otr_engine_acquire, place.handle, bytes.one_in(64) ? nullptr : drawn.ids.data(),
           count, given, bytes.one_in(64) ? nullptr : tensors.data());
  for (size_t i = 0; i < tensors.size() && status == OTR_OK && count > 0; ++i) {
    const otr_tensor& t = tensors[i];
    if (Shape(t.shape, t.shape + t.ndim) != drawn.shapes[i]) broken("acquire gave another shape");
    touch(place.model->where, t);
  }
  for (const otr_tensor& t : tensors) {
    const bool given_none = t.ndim == static_cast<int32_t>(0xA5A5A5A5);  // a NULL, or count -1
    if (status != OTR_OK && t.data != nullptr && !given_none) {
      broken("acquire failed and left a tensor");
    }
  }
}

void release(Rank& rank, Bytes& bytes, EnginePlace& place) {
  const Ids drawn = draw_ids(bytes, *place.model);
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_call_info(bytes, place.model->where, info);
  CALL(rank, otr_engine_release, place.handle, drawn.ids.data(), draw_count(bytes, drawn), given);
}

void prefetch(Rank& rank, Bytes& bytes, EnginePlace& place) {
  const Ids drawn = draw_ids(bytes, *place.model);
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_call_info(bytes, place.model->where, info);
  CALL(rank, otr_engine_prefetch, place.handle, drawn.ids.data(), draw_count(bytes, drawn), given);
}

namespace {

void acquire_any(Rank& rank, Bytes& bytes) { acquire(rank, bytes, rank.engines.pick(bytes)); }
void release_any(Rank& rank, Bytes& bytes) { release(rank, bytes, rank.engines.pick(bytes)); }
void prefetch_any(Rank& rank, Bytes& bytes) { prefetch(rank, bytes, rank.engines.pick(bytes)); }

void offload_states(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.pick(bytes);
  Roomy<otr_offload_options> options;
  CALL(rank, otr_offload_options_init, &options, sizeof(otr_offload_options));
  options.states = bytes.one_in(2) ? 0 : static_cast<int32_t>(bytes.below(18));
  options.page_lock = bytes.one_in(32) ? 2 : static_cast<int32_t>(bytes.below(2));
  if (bytes.one_in(64)) options.mistake_size(bytes);
  CALL(rank, otr_engine_offload_states, place.handle, bytes.one_in(8) ? nullptr : &options);
}

void reload_states(Rank& rank, Bytes& bytes) {
  CALL(rank, otr_engine_reload_states, rank.engines.pick(bytes).handle);
}

void set_trainable(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.pick(bytes);
  const int64_t id = draw_parameter(bytes, *place.model).id;
  const int32_t trainable = bytes.one_in(32) ? 2 : static_cast<int32_t>(bytes.below(2));
  CALL(rank, otr_engine_set_trainable, place.handle, id, trainable);
}

constexpr Call kCalls[] = {{"acquire", Scope::collective, 8, acquire_any},
                           {"release", Scope::local, 4, release_any},
                           {"prefetch", Scope::local, 1, prefetch_any},
                           {"offload states", Scope::collective, 1, offload_states},
                           {"reload states", Scope::collective, 2, reload_states},
                           {"set trainable", Scope::local, 3, set_trainable}};

}  // namespace

std::span<const Call> parameter_calls() { return kCalls; }

}  // namespace otr_fuzz
