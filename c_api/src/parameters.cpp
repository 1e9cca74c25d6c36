// SPDX-License-Identifier: Apache-2.0
#include "c_api/src/call_info.h"
#include "c_api/src/handles.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

int32_t otr_engine_parameter_count(const otr_engine* engine, int64_t* out_count) noexcept {
  return guard([&] {
    required(out_count, "out_count") = 0;
    const auto& e = get(engine, "engine");
    const auto lock = e->lock_model();
    *out_count = e->model().size();
  });
}

int32_t otr_engine_parameter_id(const otr_engine* engine, const char* name,
                                int64_t* out_id) noexcept {
  return guard([&] {
    required(out_id, "out_id") = 0;
    const auto& e = get(engine, "engine");
    const auto lock = e->lock_model();
    *out_id = e->model().id_of(&required(name, "name"));
  });
}

int32_t otr_engine_parameter_name(const otr_engine* engine, int64_t id,
                                  const char** out_name) noexcept {
  return guard([&] {
    required(out_name, "out_name") = nullptr;
    const auto& e = get(engine, "engine");
    const auto lock = e->lock_model();
    *out_name = e->model().at(id).name.c_str();
  });
}

int32_t otr_engine_parameter_shape(const otr_engine* engine, int64_t id, int32_t* out_ndim,
                                   const int64_t** out_shape) noexcept {
  return guard([&] {
    if (out_shape != nullptr) *out_shape = nullptr;
    required(out_ndim, "out_ndim") = 0;
    required(out_shape, "out_shape");
    const auto& e = get(engine, "engine");
    const auto lock = e->lock_model();
    const auto& shape = e->model().at(id).shape;
    *out_ndim = static_cast<int32_t>(shape.size());
    *out_shape = shape.empty() ? nullptr : shape.data();
  });
}

int32_t otr_engine_acquire(otr_engine* engine, const int64_t* ids, int64_t count,
                           const otr_call_info* info, otr_tensor* out_tensors) noexcept {
  return guard([&] {
    if (out_tensors != nullptr && count > 0) std::fill_n(out_tensors, count, otr_tensor{});
    const auto& e = get(engine, "engine");
    required_count(count, ids, "ids");
    required_count(count, out_tensors, "out_tensors");
    const otr_call_info read = read_call_info(info, OTR_ACQUIRE_FLOAT32, e->on_host());
    const Interruptible scope(e->context());
    e->acquire(ids, count, (read.flags & OTR_ACQUIRE_FLOAT32) != 0, read.stream, out_tensors);
  });
}

int32_t otr_engine_release(otr_engine* engine, const int64_t* ids, int64_t count,
                           const otr_call_info* info) noexcept {
  return guard([&] {
    const auto& e = get(engine, "engine");
    const otr_call_info read = read_call_info(info, OTR_ACQUIRE_FLOAT32, e->on_host());
    const Interruptible scope(e->context());
    e->release(ids, required_count(count, ids, "ids"), read.stream);
  });
}

int32_t otr_engine_prefetch(otr_engine* engine, const int64_t* ids, int64_t count,
                            const otr_call_info* info) noexcept {
  return guard([&] {
    const auto& e = get(engine, "engine");
    read_call_info(info, OTR_ACQUIRE_FLOAT32, e->on_host());
    const Interruptible scope(e->context());
    e->prefetch(ids, required_count(count, ids, "ids"));
  });
}

int32_t otr_engine_set_initial(otr_engine* engine, const int64_t* ids, int64_t count,
                               const otr_tensor* values) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    required_count(count, ids, "ids");
    required_count(count, values, "values");
    e.set_initial(ids, count, values);
  });
}

int32_t otr_engine_parameter_read(otr_engine* engine, int64_t id, int32_t value,
                                  const otr_tensor* out) noexcept {
  return waiting(engine, [&](engine::Engine& e) { e.read_value(id, value, required(out, "out")); });
}

int32_t otr_engine_parameter_write(otr_engine* engine, int64_t id, int32_t value,
                                   const otr_tensor* source) noexcept {
  return waiting(engine,
                 [&](engine::Engine& e) { e.write_value(id, value, required(source, "source")); });
}

int32_t otr_engine_local_range(const otr_engine* engine, int64_t id, int64_t* out_first,
                               int64_t* out_count) noexcept {
  return guard([&] {
    if (out_first != nullptr) *out_first = 0;
    required(out_count, "out_count") = 0;
    get(engine, "engine")->local_range(id, required(out_first, "out_first"), *out_count);
  });
}

int32_t otr_engine_local_read(otr_engine* engine, int64_t id, int32_t value,
                              const otr_tensor* out) noexcept {
  return guard([&] { get(engine, "engine")->read_local(id, value, required(out, "out")); });
}

int32_t otr_engine_local_write(otr_engine* engine, int64_t id, int32_t value,
                               const otr_tensor* source) noexcept {
  return guard([&] { get(engine, "engine")->write_local(id, value, required(source, "source")); });
}

int32_t otr_engine_set_trainable(otr_engine* engine, int64_t id, int32_t trainable) noexcept {
  return guard([&] {
    const auto& e = get(engine, "engine");
    if (trainable != 0 && trainable != 1) {
      fail(OTR_E_ARGUMENT, "trainable = {}; legal is 1, or 0 for frozen", trainable);
    }
    e->set_trainable(id, trainable != 0);
  });
}
