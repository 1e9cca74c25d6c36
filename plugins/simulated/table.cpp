// SPDX-License-Identifier: Apache-2.0
// The plugin's table: C functions over simulated devices, which all contexts of a process share.
#include <unistd.h>

#include <array>

#include "plugins/common/guard.h"
#include "plugins/simulated/kernels.h"

using outrigger::plugins::guard;
using outrigger::plugins::last_error;
using outrigger::simulated::Device;
using outrigger::simulated::kDevices;
using outrigger::simulated::Recorded;
using outrigger::simulated::Touch;

struct otr_plugin_device {
  std::shared_ptr<Device> device;
};
struct otr_plugin_event {
  std::shared_ptr<Recorded> event;
};

namespace {

// Never destroyed: a device may be closed while the process ends.
struct Registry {
  std::mutex mutex;
  pid_t process = getpid();
  std::array<std::weak_ptr<Device>, kDevices> devices;
};
Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

int32_t device_count(int32_t* out_count) {
  *out_count = kDevices;
  return OTR_OK;
}

int32_t open(int32_t id, otr_plugin_device** out) {
  return guard([&] {
    *out = nullptr;
    if (id < 0 || id >= kDevices) {
      outrigger::plugins::fail(OTR_E_ARGUMENT, "simulated device " + std::to_string(id) +
                                                   " does not exist; there are 0 to " +
                                                   std::to_string(kDevices - 1));
    }
    const std::lock_guard lock(registry().mutex);
    if (registry().process !=
        getpid()) {  // a forked child has its parent's devices without threads
      registry().process = getpid();
      registry().devices = {};
    }
    std::weak_ptr<Device>& known = registry().devices.at(static_cast<size_t>(id));
    std::shared_ptr<Device> device = known.lock();
    if (!device) known = device = std::make_shared<Device>(id);
    *out = new otr_plugin_device{std::move(device)};
  });
}

void close(otr_plugin_device* d) { delete d; }

int32_t set_value(otr_plugin_device* d, const char* name, double value) {
  return guard([&] { d->device->set_value(name, value); });
}
int32_t get_value(otr_plugin_device* d, const char* name, double* out) {
  return guard([&] { *out = d->device->value(name); });
}
int32_t memory_info(otr_plugin_device* d, uint64_t* out_free, uint64_t* out_total) {
  return guard([&] { d->device->memory_info(*out_free, *out_total); });
}
int32_t allocate(otr_plugin_device* d, size_t bytes, uint64_t stream, void** out) {
  return guard([&] {
    *out = nullptr;
    *out = d->device->allocate(bytes, stream);
  });
}
int32_t release(otr_plugin_device* d, void* data, uint64_t stream) {
  return guard([&] { d->device->release(data, stream); });
}
int32_t pin(otr_plugin_device* d, void* data, size_t bytes) {
  return guard([&] { d->device->pin(data, bytes); });
}
void unpin(otr_plugin_device* d, void* data) { d->device->unpin(data); }

int32_t synchronize(otr_plugin_device* d) {
  return guard([&] { d->device->synchronize(); });
}
int32_t stream_create(otr_plugin_device* d, uint64_t* out) {
  return guard([&] { *out = d->device->create_stream(); });
}
void stream_destroy(otr_plugin_device* d, uint64_t stream) {
  static_cast<void>(guard([&] { d->device->destroy_stream(stream); }));
}
int32_t stream_synchronize(otr_plugin_device* d, uint64_t stream) {
  return guard([&] { d->device->synchronize(stream); });
}
int32_t event_record(otr_plugin_device* d, uint64_t stream, otr_plugin_event** out) {
  return guard([&] {
    *out = nullptr;
    *out = new otr_plugin_event{d->device->record(stream)};
  });
}
int32_t event_synchronize(otr_plugin_device* d, otr_plugin_event* event) {
  return guard([&] { d->device->synchronize(*event->event); });
}
int32_t event_query(otr_plugin_device* d, otr_plugin_event* event, int32_t* out_done) {
  return guard([&] { *out_done = d->device->is_done(*event->event) ? 1 : 0; });
}
void event_destroy(otr_plugin_device*, otr_plugin_event* event) { delete event; }
int32_t stream_wait(otr_plugin_device* d, uint64_t stream, otr_plugin_event* event) {
  return guard([&] { d->device->wait(stream, event->event); });
}

int32_t copy(otr_plugin_device* d, void* to, const void* from, size_t bytes, int32_t direction,
             uint64_t stream) {
  return guard([&] { d->device->copy(to, from, bytes, direction, stream); });
}
int32_t zero(otr_plugin_device* d, void* data, size_t bytes, uint64_t stream) {
  return guard([&] {
    std::byte* at = d->device->inside(data, bytes, "zero's memory");
    const Touch touch{static_cast<const std::byte*>(data), bytes, true};
    d->device->launch(stream, "zero", {&touch, 1},
                      [at, bytes] { std::fill_n(at, bytes, std::byte{0}); });
  });
}
int32_t convert(otr_plugin_device* d, const otr_plugin_convert* list, int64_t count,
                uint64_t stream) {
  return guard([&] { outrigger::simulated::convert(*d->device, list, count, stream); });
}
int32_t fold(otr_plugin_device* d, const otr_plugin_fold* given, uint64_t stream) {
  return guard([&] { outrigger::simulated::fold(*d->device, *given, stream); });
}
int32_t update(otr_plugin_device* d, const otr_plugin_update* pieces, int64_t count,
               otr_plugin_update_count* host_total, uint64_t stream) {
  return guard(
      [&] { outrigger::simulated::update(*d->device, pieces, count, host_total, stream); });
}
int32_t product(otr_plugin_device* d, const otr_plugin_product* given, uint64_t stream) {
  return guard([&] { outrigger::simulated::product(*d->device, *given, stream); });
}

int32_t decide(otr_plugin_device* d, const otr_plugin_decide* given, uint64_t stream) {
  return guard([&] { outrigger::simulated::decide(*d->device, *given, stream); });
}

constexpr otr_device_plugin kTable = {
    .struct_size = sizeof(otr_device_plugin),
    .version = OTR_DEVICE_PLUGIN_VERSION,
    .name = "simulated",
    .device_type = OTR_DEVICE_EXTENSION,
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
