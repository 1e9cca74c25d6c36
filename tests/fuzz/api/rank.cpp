// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/rank.h"

#include <cmath>
#include <functional>

#include "core/base/text.h"

namespace otr_fuzz {
namespace {

// False: as it was, all defaults.
bool draw_fields(Bytes& bytes, Roomy<otr_call_info>& info) {
  switch (bytes.below(16)) {
    case 0:
      return true;
    case 1:
    case 2:
      info.flags = OTR_ACQUIRE_FLOAT32;
      return true;
    case 3:
      info.flags = OTR_PASS_KEEP_DTYPE;
      return true;
    case 4:
    case 5: {
      constexpr double kScales[] = {1, 2, 0.25, 65536, -1, 1e300, NAN, 0};
      info.loss_scale = bytes.pick(kScales);
      info.accumulation = static_cast<int32_t>(bytes.below(4)) - (bytes.one_in(8) ? 2 : 0);
      info.ranks = static_cast<int32_t>(bytes.below(4));
      return true;
    }
    case 6:
      switch (bytes.below(4)) {
        case 0:
          info.stream = uint64_t{1} << 40;
          break;
        case 1:
          info.mistake_size(bytes);
          break;
        case 2:
          info.reserved[2] = 1;
          break;
        default:
          info.flags = 0x80;
      }
      return true;
    default:
      return false;
  }
}

}  // namespace

Rank::~Rank() {
  if (channels != 0)
    broken(outrigger::format_text("{} channels were not given back", channels.load()));
}

void Rank::drop(ContextPlace& place) { GIVE_BACK(*this, otr_context_destroy, place.handle); }
void Rank::drop(CommPlace& place) { GIVE_BACK(*this, otr_comm_destroy, place.handle); }
void Rank::drop(OptimizerPlace& place) { GIVE_BACK(*this, otr_optimizer_destroy, place.handle); }

void Rank::drop(EnginePlace& place) {
  GIVE_BACK(*this, otr_engine_destroy, place.handle);
  place.model = std::make_shared<Model>();  // passes keep the old one
}

void Rank::drop(PassPlace& place) {
  if (place.handle != nullptr) --place.model->passes;
  GIVE_BACK(*this, otr_pass_destroy, place.handle);
  place = {};
}

void Rank::drop(ShardPlace& place) {
  GIVE_BACK(*this, otr_shard_destroy, place.handle);
  place = {};
}

void Rank::drop(MemoryPlace& place) {
  if (place.handle != nullptr) {
    CALL(*this, otr_device_free, place.where->context(), kSimulated, place.where->id().device_id,
         place.handle);
  }
  place = {};
}

void Rank::drop_all(Bytes& bytes) {
  std::vector<std::function<void()>> drops;
  const auto collect = [&](auto& places) {
    for (auto& place : places.all) {
      if (place.handle != nullptr) drops.emplace_back([this, &place] { drop(place); });
    }
  };
  collect(contexts);
  collect(comms);
  collect(engines);
  collect(passes);
  collect(shards);
  collect(optimizers);
  collect(memories);
  while (!drops.empty()) {
    const size_t at = bytes.below(static_cast<uint32_t>(drops.size()));
    drops[at]();
    drops.erase(drops.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

DrawnParameter draw_parameter(Bytes& bytes, const Model& model) {
  const uint32_t drawn = bytes.byte();
  constexpr int64_t kWrong[] = {-1, 1000, INT64_MIN, INT64_MAX};
  if (model.parameters.empty() || drawn >= 250) {
    return {model.parameters.empty() ? 0 : kWrong[drawn % 4], {2}};
  }
  const size_t id = drawn % model.parameters.size();
  return {static_cast<int64_t>(id), model.parameters[id].shape};
}

Where draw_where(Bytes& bytes, const Model& model) {
  return bytes.one_in(2) ? nullptr : model.where;
}

const otr_call_info* draw_call_info(Bytes& bytes, Where where, Roomy<otr_call_info>& info) {
  otr_call_info_init(&info, sizeof(otr_call_info));
  const bool given = draw_fields(bytes, info);
  Roomy<otr_call_info> other;
  const otr_call_info* on_stream = draw_stream(bytes, where, other);
  if (on_stream == nullptr) return given ? &info : nullptr;
  if (info.stream == 0) info.stream = on_stream->stream;
  return &info;
}

const otr_call_info* draw_stream(Bytes& bytes, Where where, Roomy<otr_call_info>& info) {
  otr_call_info_init(&info, sizeof(otr_call_info));
  const uint32_t drawn = bytes.below(4);
  if (where == nullptr || drawn == 0) return nullptr;
  info.stream = drawn == 1 ? 1 : where->stream();
  return &info;
}

}  // namespace otr_fuzz
