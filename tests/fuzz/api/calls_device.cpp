// SPDX-License-Identifier: Apache-2.0
// Plugins, and devices with their memory, speeds and faults.
#include <cmath>

#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

int32_t draw_type(Bytes& bytes) {
  constexpr int32_t kTypes[] = {OTR_DEVICE_CPU, OTR_DEVICE_CUDA, 99, -1};
  return bytes.one_in(16) ? bytes.pick(kTypes) : kSimulated;
}

// Mostly the rank's own, else one that all ranks have.
int32_t draw_id(Rank& rank, Bytes& bytes) {
  constexpr int32_t kWrong[] = {8, -1, INT32_MAX, INT32_MIN};
  if (bytes.one_in(32)) return bytes.pick(kWrong);
  const uint32_t drawn = bytes.below(8);
  return drawn < 5 ? rank.number : drawn < 7 ? 0 : 4 + rank.number;
}

void load_plugin(Rank& rank, Bytes& bytes) {
  constexpr const char* kNames[] = {"nowhere", "", "/no/such.so", nullptr};
  otr_context* context = rank.contexts.pick(bytes).handle;
  CALL(rank, otr_context_load_plugin, context, bytes.one_in(4) ? bytes.pick(kNames) : "simulated");
}

void count(Rank& rank, Bytes& bytes) {
  otr_context* context = rank.contexts.pick(bytes).handle;
  const int32_t type = draw_type(bytes);
  Out<int32_t> out(bytes);
  if (CALL(rank, otr_device_count, context, type, out) == OTR_OK && out.value < 1) {
    broken(outrigger::format_text("{} devices of type {}", out.value, type));
  }
}

struct Setting {
  const char* name;
  double values[3];
};

void set(Rank& rank, Bytes& bytes, const Setting& setting) {
  constexpr double kWrong[] = {-1, 1e300, NAN};
  otr_context* context = rank.contexts.pick(bytes).handle;
  const int32_t type = draw_type(bytes), id = draw_id(rank, bytes);
  const double value = bytes.one_in(32) ? bytes.pick(kWrong) : bytes.pick(setting.values);
  CALL(rank, otr_device_set_value, context, type, id, bytes.one_in(64) ? nullptr : setting.name,
       value);
}

// Short enough for a window of many operations.
void set_speed(Rank& rank, Bytes& bytes) {
  constexpr Setting kSettings[] = {{"copy_bytes_per_second", {0, 1e9, 1e8}},
                                   {"copy_latency", {0, 1e-5, 2e-4}},
                                   {"launch_latency", {0, 1e-5, 1e-4}},
                                   {"speed", {0, 1, 2}}};
  set(rank, bytes, bytes.pick(kSettings));
}

void set_limit(Rank& rank, Bytes& bytes) {
  set(rank, bytes, {"memory_bytes", {0x1p53, 0x1p30, bytes.below(64) * 1024.0}});
}

void fail_allocation(Rank& rank, Bytes& bytes) {
  set(rank, bytes, {"fail_allocation", {0, 1, 1.0 + bytes.byte()}});
}

// The device is lost then, for the rest of the program.
void fail_operation(Rank& rank, Bytes& bytes) {
  set(rank, bytes, {"fail_operation", {0, 1, 1.0 + bytes.byte()}});
}

void allocate(Rank& rank, Bytes& bytes) {
  MemoryPlace& place = rank.memories.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  otr_context* context = rank.contexts.pick(bytes).handle;
  const int32_t type = draw_type(bytes), id = draw_id(rank, bytes);
  constexpr size_t kWrong[] = {0, SIZE_MAX, SIZE_MAX - 254, size_t{1} << 50};
  const size_t size = bytes.one_in(8) ? bytes.pick(kWrong) : 1 + bytes.below(5000);
  Out<void*> out(bytes);
  if (CALL(rank, otr_device_allocate, context, type, id, size, out) == OTR_OK) {
    place = {out.value, &rank.devices.open(id)};
  }
}

// An address that is none is refused; only an own one is given, and once.
void release(Rank& rank, Bytes& bytes) {
  MemoryPlace& place = rank.memories.pick(bytes);
  otr_context* context = rank.contexts.pick(bytes).handle;
  const int32_t type = draw_type(bytes);
  const int32_t id = place.where == nullptr ? draw_id(rank, bytes) : place.where->id().device_id;
  const bool inside = bytes.one_in(8);
  void* data = inside && place.handle != nullptr ? static_cast<char*>(place.handle) + 1 : nullptr;
  if (inside || place.handle == nullptr) {
    const int32_t status = CALL(rank, otr_device_free, context, type, id, data);
    if (status == OTR_OK && data != nullptr) broken("an address inside an allocation was freed");
    return;
  }
  if (CALL(rank, otr_device_free, context, type, id, place.handle) == OTR_OK) place = {};
}

// The device of an engine or of an allocation; that of none is the host.
Where draw_any_device(Rank& rank, Bytes& bytes) {
  const Where engines = rank.engines.pick(bytes).model->where;
  const Where memories = rank.memories.pick(bytes).where;
  return bytes.one_in(2) || memories == nullptr ? engines : memories;
}

// From the host to the device, there, and back: what arrives is what was sent.
void copy_around(Rank& rank, Bytes& bytes) {
  otr_context* context = rank.contexts.pick(bytes).handle;
  const Where where = draw_any_device(rank, bytes);
  const Shape shape = draw_shape(bytes);
  const char* dtype = bytes.pick(kDtypes);
  const Sample first = make_sample(bytes, nullptr, shape, dtype),
               there = make_sample(bytes, where, shape, dtype),
               beside = make_sample(bytes, where, shape, dtype),
               last = make_sample(bytes, nullptr, shape, dtype);
  if (CALL(rank, otr_tensor_copy, context, &there.tensor, &first.tensor) == OTR_OK &&
      CALL(rank, otr_tensor_copy, context, &beside.tensor, &there.tensor) == OTR_OK &&
      CALL(rank, otr_tensor_copy, context, &last.tensor, &beside.tensor) == OTR_OK &&
      get(nullptr, first.tensor) != get(nullptr, last.tensor)) {
    broken("a tensor that was copied to a device and back is another one");
  }
}

void copy_doubtful(Rank& rank, Bytes& bytes) {
  otr_context* context = rank.contexts.pick(bytes).handle;
  const Where any = draw_any_device(rank, bytes), other = draw_any_device(rank, bytes);
  const Shape shape = draw_shape(bytes);
  const Sample to = draw_doubtful(bytes, bytes.one_in(2) ? nullptr : any, shape, Use::output);
  const Sample from = draw_doubtful(bytes, bytes.one_in(2) ? nullptr : other, shape, Use::source);
  CALL(rank, otr_tensor_copy, context, bytes.one_in(64) ? nullptr : &to.tensor,
       bytes.one_in(64) ? nullptr : &from.tensor);
}

void set_device(Rank& rank, Bytes& bytes) { put_on_device(rank, bytes, rank.engines.pick(bytes)); }

constexpr Call kCalls[] = {{"load plugin", Scope::local, 2, load_plugin},
                           {"device count", Scope::local, 1, count},
                           {"device speed", Scope::local, 2, set_speed},
                           {"device memory limit", Scope::local, 1, set_limit},
                           {"device fails allocation", Scope::local, 1, fail_allocation},
                           {"device fails operation", Scope::local, 1, fail_operation},
                           {"device allocate", Scope::local, 3, allocate},
                           {"device free", Scope::local, 2, release},
                           {"tensor copy around", Scope::local, 2, copy_around},
                           {"tensor copy", Scope::local, 3, copy_doubtful},
                           {"engine set device", Scope::local, 2, set_device}};

}  // namespace

void put_on_device(Rank& rank, Bytes& bytes, EnginePlace& place) {
  const int32_t type = draw_type(bytes), id = draw_id(rank, bytes);
  if (CALL(rank, otr_engine_set_device, place.handle, type, id) != OTR_OK) return;
  place.model->where = type == kSimulated ? &rank.devices.open(id) : nullptr;
}

std::span<const Call> device_calls() { return kCalls; }

}  // namespace otr_fuzz
