// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <optional>

#include "c_api/src/handles.h"
#include "core/tensor/tensor.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

namespace {

std::shared_ptr<device::PluginDevice> open(otr_context* context, const otr_device& device) {
  if (device.device_type == OTR_DEVICE_CPU) {
    fail(OTR_E_ARGUMENT, "device_type is OTR_DEVICE_CPU ({}): give one that a plugin drives",
         static_cast<int>(OTR_DEVICE_CPU));
  }
  return get(context, "context")->devices().open(device);
}

void copy(otr_context* context, const otr_tensor& to, const otr_tensor& from) {
  const bool to_host = to.device.device_type == OTR_DEVICE_CPU;
  const otr_device& other = to_host ? from.device : to.device;
  const tensor::View target = tensor::check(to, "the copy's destination", true, other);
  const tensor::View source = tensor::check(from, "the copy's source", true, other);
  if (target.shape != source.shape) {
    fail(OTR_E_SHAPE, "the copy's source has shape {}, its destination {}: they must be equal",
         tensor::text_of(source.shape), tensor::text_of(target.shape));
  }
  if (target.format != source.format) {
    fail(OTR_E_DTYPE, "the copy's source is {}, its destination {}: they must be equal",
         tensor::name_of(source.format), tensor::name_of(target.format));
  }
  if (!target.contiguous || !source.contiguous) {
    fail(OTR_E_SHAPE, "a copy takes row-major tensors: give its {} without other strides",
         target.contiguous ? "source" : "destination");
  }
  const size_t bytes = static_cast<size_t>(source.count) * kernels::size_of(source.format);
  if (bytes == 0) return;
  if (target.on_host && source.on_host) {
    std::memmove(target.data, source.data, bytes);
    return;
  }
  const auto device = open(context, other);
  constexpr device::Stream stream = 0;  // after what a host gave to its default stream
  if (target.on_host) {
    device->download(target.data, source.data, bytes, stream);
  } else if (source.on_host) {
    device->upload(target.data, source.data, bytes, stream);
  } else {
    device->copy(target.data, source.data, bytes, stream);
  }
  device->synchronize(stream);
}

}  // namespace

int32_t otr_context_load_plugin(otr_context* context, const char* name) noexcept {
  return guard([&] { get(context, "context")->devices().load(&required(name, "name")); });
}

int32_t otr_device_count(otr_context* context, int32_t device_type, int32_t* out_count) noexcept {
  return guard([&] {
    required(out_count, "out_count") = 0;
    const auto& c = get(context, "context");
    *out_count = device_type == OTR_DEVICE_CPU ? 1 : c->devices().count(device_type);
  });
}

int32_t otr_device_set_value(otr_context* context, int32_t device_type, int32_t device_id,
                             const char* name, double value) noexcept {
  return guard(
      [&] { open(context, {device_type, device_id})->set_value(&required(name, "name"), value); });
}

int32_t otr_device_get_value(otr_context* context, int32_t device_type, int32_t device_id,
                             const char* name, double* out_value) noexcept {
  return guard([&] {
    required(out_value, "out_value") = 0;
    *out_value = open(context, {device_type, device_id})->value(&required(name, "name"));
  });
}

int32_t otr_device_allocator_init(otr_device_allocator* allocator, size_t size) noexcept {
  otr_device_allocator defaults{};
  defaults.struct_size = sizeof defaults;
  return init_struct(allocator, size, defaults, "allocator");
}

int32_t otr_device_set_allocator(otr_context* context, int32_t device_type, int32_t device_id,
                                 const otr_device_allocator* allocator) noexcept {
  return guard([&] {
    std::optional<otr_device_allocator> given;
    if (allocator != nullptr) {
      given = read_struct(allocator, otr_device_allocator{}, "allocator");
      if (given->allocate == nullptr || given->release == nullptr) {
        fail(OTR_E_ARGUMENT, "allocator.{} is NULL: give both functions",
             given->allocate == nullptr ? "allocate" : "release");
      }
    }
    open(context, {device_type, device_id})->set_allocator(given);
  });
}

int32_t otr_device_allocate(otr_context* context, int32_t device_type, int32_t device_id,
                            size_t bytes, void** out_data) noexcept {
  return guard([&] {
    required(out_data, "out_data") = nullptr;
    if (bytes == 0) fail(OTR_E_ARGUMENT, "bytes = 0; legal is 1 or more");
    *out_data = open(context, {device_type, device_id})->take(bytes, device::kNoStream);
  });
}

int32_t otr_device_free(otr_context* context, int32_t device_type, int32_t device_id,
                        void* data) noexcept {
  return guard([&] {
    const auto opened = open(context, {device_type, device_id});
    if (data != nullptr) opened->free(data);
  });
}

int32_t otr_tensor_copy(otr_context* context, const otr_tensor* to,
                        const otr_tensor* from) noexcept {
  return guard([&] {
    static_cast<void>(get(context, "context"));
    copy(context, required(to, "to"), required(from, "from"));
  });
}
