// SPDX-License-Identifier: Apache-2.0
#include "core/device/plugin.h"

#include "core/base/error.h"

namespace outrigger::device {

PluginDevice::PluginDevice(const Plugin& plugin, int32_t device_id)
    : table_(plugin.table), device_id_(device_id) {
  check(table_.open(device_id, &device_), "opening");
}

PluginDevice::~PluginDevice() {
  for (const Stream stream : streams_) {
    if (stream != 0) table_.stream_destroy(device_, stream);
  }
  table_.close(device_);
}

Stream PluginDevice::stream(size_t index) const {
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_.at(index);
  if (stream == 0) check(table_.stream_create(device_, &stream), "a stream");
  return stream;
}

std::shared_ptr<const Stream> PluginDevice::make_stream() {
  Stream made = 0;
  check(table_.stream_create(device_, &made), "a stream");
  const auto end = [this](const Stream* stream) {
    table_.stream_destroy(device_, *stream);
    delete stream;
  };
  return {new Stream(made), end};
}

void PluginDevice::check(int32_t status, const char* what) const {
  if (status == OTR_OK) return;
  const char* text = table_.last_error();
  fail(status, "{} on {} device {} failed: {}", what, table_.name, device_id_,
       text == nullptr || *text == '\0' ? otr_status_name(status) : text);
}

Abilities PluginDevice::abilities() const {
  const auto without = [](uint64_t bits, kernels::Rule rule) {
    return bits & ~(uint64_t{1} << static_cast<uint32_t>(rule));
  };
  uint64_t rules = table_.rules;
  if ((rules >> OTR_PLUGIN_LAMB_NORMS & 1U) == 0) rules = without(rules, kernels::Rule::lamb);
  if (table_.product == nullptr) rules = without(rules, kernels::Rule::muon);
  return {rules, table_.weight_formats, table_.moment_formats, table_.roundings};
}

void PluginDevice::set_value(const char* name, double value) {
  check(table_.set_value(device_, name, value), "setting a value");
}

double PluginDevice::value(const char* name) const {
  double value = 0;
  check(table_.get_value(device_, name, &value), "reading a value");
  return value;
}

Event PluginDevice::record(Stream stream) {
  otr_plugin_event* event = nullptr;
  check(table_.event_record(device_, stream, &event), "an event");
  return {event,
          [this](void* e) { table_.event_destroy(device_, static_cast<otr_plugin_event*>(e)); }};
}

void PluginDevice::wait(Stream stream, const Event& event) {
  if (!event) return;
  check(table_.stream_wait(device_, stream, static_cast<otr_plugin_event*>(event.get())),
        "waiting for an event");
}

void PluginDevice::synchronize(Stream stream) {
  check(table_.stream_synchronize(device_, stream), "work");
}

void PluginDevice::synchronize(const Event& event) {
  if (!event) return;
  check(table_.event_synchronize(device_, static_cast<otr_plugin_event*>(event.get())), "work");
}

bool PluginDevice::is_done(const Event& event) {
  int32_t done = 1;
  if (event) {
    check(table_.event_query(device_, static_cast<otr_plugin_event*>(event.get()), &done), "work");
  }
  return done != 0;
}

void PluginDevice::download(void* host, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(table_.copy(device_, host, from, bytes, OTR_PLUGIN_DEVICE_TO_HOST, stream),
        "a copy to the host");
}

void PluginDevice::upload(void* to, const void* host, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(table_.copy(device_, to, host, bytes, OTR_PLUGIN_HOST_TO_DEVICE, stream),
        "a copy from the host");
}

void PluginDevice::copy(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0 || to == from) return;
  check(table_.copy(device_, to, from, bytes, OTR_PLUGIN_ON_DEVICE, stream), "a copy");
}

void PluginDevice::zero(void* data, size_t bytes, Stream stream) {
  if (bytes > 0) check(table_.zero(device_, data, bytes, stream), "clearing memory");
}

}  // namespace outrigger::device
