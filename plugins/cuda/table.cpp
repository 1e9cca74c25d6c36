// SPDX-License-Identifier: Apache-2.0
// The plugin's table: C functions over GPUs, which all contexts of a process share.
#include <exception>
#include <map>
#include <memory>
#include <mutex>

#include "plugins/common/guard.h"
#include "plugins/cuda/device.h"

using outrigger::cuda::Current;
using outrigger::cuda::Device;
using outrigger::cuda::Event;
using outrigger::plugins::last_error;

struct otr_plugin_device {
  std::shared_ptr<Device> device;
};
struct otr_plugin_event {
  Event event;
};

namespace {

using outrigger::plugins::guard;

// On a device that is not lost, in its context.
template <typename Body>
int32_t guard(otr_plugin_device* d, const Body& body) noexcept {
  return guard([&] {
    d->device->gpu().require_alive();
    const Current current(d->device->gpu());
    body(*d->device);
  });
}
// The same, in a stream, which is named if it may be the fault.
template <typename Body>
int32_t guard(otr_plugin_device* d, uint64_t stream, const Body& body) noexcept {
  const int32_t status = guard(d, body);
  if (status == OTR_E_ARGUMENT && stream != OTR_PLUGIN_NO_STREAM) {
    const std::string text =
        std::string(last_error()) + "; the stream is " + std::to_string(stream);
    static_cast<void>(guard([&] { outrigger::plugins::fail(status, text); }));
  }
  return status;
}
// On any: what is given back.
template <typename Body>
void give_back(otr_plugin_device* d, const Body& body) noexcept {
  static_cast<void>(guard([&] {
    const Current current(d->device->gpu());
    body(*d->device);
  }));
}

// Never destroyed: a device may be closed while the process ends.
struct Registry {
  std::mutex mutex;
  std::map<int32_t, std::weak_ptr<Device>> devices;
};
Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

int32_t device_count(int32_t* out_count) {
  return guard([&] {
    *out_count = 0;
    const outrigger::cuda::Driver& driver = outrigger::cuda::driver();
    int count = 0;
    const outrigger::cuda::Result result = driver.cuDeviceGetCount.at(&count);
    if (result != outrigger::cuda::kSuccess) {
      outrigger::plugins::fail(outrigger::cuda::status_of(result),
                               text_of(driver, driver.cuDeviceGetCount.name, result));
    }
    *out_count = count;
  });
}

int32_t open(int32_t id, otr_plugin_device** out) {
  return guard([&] {
    *out = nullptr;
    static_cast<void>(outrigger::cuda::driver());  // refuses in a child of a process with devices
    const std::lock_guard lock(registry().mutex);
    auto opened = std::make_unique<otr_plugin_device>();
    opened->device = registry().devices[id].lock();
    if (!opened->device) {
      opened->device = std::make_shared<Device>(id);
      registry().devices[id] = opened->device;
    }
    *out = opened.release();
  });
}

// One device at a time is given back or made.
void close(otr_plugin_device* d) {
  const std::lock_guard lock(registry().mutex);
  give_back(d, [](Device& device) { device.gpu().try_call(device.gpu().driver.cuCtxSynchronize); });
  delete d;
}

int32_t set_value(otr_plugin_device* d, const char* name, double value) {
  return guard([&] { d->device->set_value(name, value); });
}
int32_t get_value(otr_plugin_device* d, const char* name, double* out) {
  return guard([&] { *out = d->device->value(name); });
}
int32_t memory_info(otr_plugin_device* d, uint64_t* out_free, uint64_t* out_total) {
  return guard(d, [&](Device& device) { device.memory().info(*out_free, *out_total); });
}
int32_t allocate(otr_plugin_device* d, size_t bytes, uint64_t stream, void** out) {
  *out = nullptr;
  return guard(d, stream, [&](Device& device) { *out = device.allocate(bytes, stream); });
}
int32_t release(otr_plugin_device* d, void* data, uint64_t stream) {
  return guard([&] {
    const Current current(d->device->gpu());
    d->device->release(data, stream);
  });
}
int32_t pin(otr_plugin_device* d, void* data, size_t bytes) {
  return guard(d, [&](Device& device) { device.pin(data, bytes); });
}
void unpin(otr_plugin_device* d, void* data) {
  give_back(d, [&](Device& device) { device.unpin(data); });
}

int32_t synchronize(otr_plugin_device* d) {
  return guard(d, [](Device& device) { device.synchronize(); });
}
int32_t stream_create(otr_plugin_device* d, uint64_t* out) {
  return guard(d, [&](Device& device) { *out = device.create_stream(); });
}
void stream_destroy(otr_plugin_device* d, uint64_t stream) {
  give_back(d, [&](Device& device) { device.destroy_stream(stream); });
}
int32_t stream_synchronize(otr_plugin_device* d, uint64_t stream) {
  return guard(d, stream, [&](Device& device) { device.synchronize(stream); });
}
int32_t event_record(otr_plugin_device* d, uint64_t stream, otr_plugin_event** out) {
  *out = nullptr;
  return guard(d, stream, [&](Device& device) {
    auto made = std::make_unique<otr_plugin_event>();
    made->event = device.record(stream);
    *out = made.release();
  });
}
int32_t event_synchronize(otr_plugin_device* d, otr_plugin_event* event) {
  return guard(d, [&](Device& device) { device.synchronize(event->event); });
}
int32_t event_query(otr_plugin_device* d, otr_plugin_event* event, int32_t* out_done) {
  return guard(d, [&](Device& device) { *out_done = device.is_done(event->event) ? 1 : 0; });
}
void event_destroy(otr_plugin_device* d, otr_plugin_event* event) {
  d->device->forget(event->event);
  delete event;
}
int32_t stream_wait(otr_plugin_device* d, uint64_t stream, otr_plugin_event* event) {
  return guard(d, stream, [&](Device& device) { device.wait(stream, event->event); });
}

int32_t copy(otr_plugin_device* d, void* to, const void* from, size_t bytes, int32_t direction,
             uint64_t stream) {
  return guard(d, stream, [&](Device& device) { device.copy(to, from, bytes, direction, stream); });
}
int32_t zero(otr_plugin_device* d, void* data, size_t bytes, uint64_t stream) {
  return guard(d, stream, [&](Device& device) { device.zero(data, bytes, stream); });
}
int32_t convert(otr_plugin_device* d, const otr_plugin_convert* list, int64_t count,
                uint64_t stream) {
  return guard(d, stream, [&](Device& device) { device.convert(list, count, stream); });
}
int32_t fold(otr_plugin_device* d, const otr_plugin_fold* given, uint64_t stream) {
  return guard(d, stream, [&](Device& device) { device.fold(*given, stream); });
}
int32_t update(otr_plugin_device* d, const otr_plugin_update* pieces, int64_t count,
               otr_plugin_update_count* host_total, uint64_t stream) {
  return guard(d, stream,
               [&](Device& device) { device.update(pieces, count, host_total, stream); });
}
int32_t product(otr_plugin_device* d, const otr_plugin_product* given, uint64_t stream) {
  return guard(d, stream, [&](Device& device) { device.product(*given, stream); });
}

int32_t decide(otr_plugin_device* d, const otr_plugin_decide* given, uint64_t stream) {
  return guard(d, stream, [&](Device& device) { device.decide(*given, stream); });
}

constexpr otr_device_plugin kTable = {
    .struct_size = sizeof(otr_device_plugin),
    .version = OTR_DEVICE_PLUGIN_VERSION,
    .name = "cuda",
    .device_type = OTR_DEVICE_CUDA,
    .reserved0 = 0,
    .rules = outrigger::plugins::kRules,
    .weight_formats = outrigger::plugins::kWeightFormats,
    .moment_formats = outrigger::plugins::kMomentFormats,
    .roundings = outrigger::plugins::kRoundings,
    .last_error = last_error,
    .device_count = device_count,
    .open = open,
    .close = close,
    .set_value = set_value,
    .get_value = get_value,
    .memory_info = memory_info,
    .allocate = allocate,
    .release = release,
    .pin = pin,
    .unpin = unpin,
    .synchronize = synchronize,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_record = event_record,
    .event_synchronize = event_synchronize,
    .event_query = event_query,
    .event_destroy = event_destroy,
    .stream_wait = stream_wait,
    .copy = copy,
    .zero = zero,
    .convert = convert,
    .fold = fold,
    .update = update,
    .product = product,
    .decide = decide,
};

}  // namespace

extern "C" OTR_API const otr_device_plugin* otr_device_plugin_table(void) { return &kTable; }
