// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/base/text.h"
#include "tests/fuzz/api/call.h"

namespace otr_fuzz {
namespace {

// The object that the library has loaded.
const otr_device_plugin* simulated_table() {
  static const otr_device_plugin* const kTable = [] {
    const char* folder = std::getenv("OTR_PLUGIN_PATH");
    const std::string path =
        std::string(folder == nullptr ? "." : folder) + "/liboutrigger_simulated.so";
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) {
      broken(outrigger::format_text("OTR_PLUGIN_PATH is not the simulated device's folder: {}",
                                    dlerror()));
    }
    return reinterpret_cast<otr_device_plugin_function>(dlsym(object, OTR_DEVICE_PLUGIN_SYMBOL))();
  }();
  return kTable;
}

// A call that this host makes for itself.
void expect_ok(const char* call, int32_t status) {
  if (status != OTR_OK) broken(outrigger::format_text("{}: {}", call, otr_last_error_message()));
}

// Null where the tensor is on the CPU.
const Device* device_of(const Device* device, const otr_tensor& t) {
  if (t.device.device_type == OTR_DEVICE_CPU) return nullptr;
  if (device == nullptr) broken("a tensor is on a device, what it belongs to is not");
  return device;
}

size_t bytes_of(const otr_tensor& t) {
  size_t bytes = t.dtype.bits / 8U;
  for (int32_t d = 0; d < t.ndim; ++d) bytes *= static_cast<size_t>(t.shape[d]);
  return bytes;
}

otr_tensor on_host(otr_tensor like, void* data) {
  like.data = data;
  like.byte_offset = 0;
  like.device = {OTR_DEVICE_CPU, 0};
  return like;
}

}  // namespace

Device::Device(int32_t id) : id_(id), table_(simulated_table()) {
  expect_ok("otr_context_create", otr_context_create(nullptr, &context_));
  expect_ok("otr_context_load_plugin", otr_context_load_plugin(context_, "simulated"));
  if (table_->open(id, &opened_) != OTR_OK || table_->stream_create(opened_, &stream_) != OTR_OK) {
    broken(outrigger::format_text("device {}: {}", id, table_->last_error()));
  }
}

Device::~Device() {
  table_->stream_destroy(opened_, stream_);
  table_->close(opened_);
  otr_context_destroy(context_);
}

void* Device::allocate(size_t bytes) const {
  void* data = nullptr;
  const int32_t status =
      otr_device_allocate(context_, kSimulated, id_, bytes == 0 ? 1 : bytes, &data);
  examine("otr_device_allocate", status);
  return data;
}

void Device::release(void* data) const {
  expect_ok("otr_device_free", otr_device_free(context_, kSimulated, id_, data));
}

bool Device::copy(const otr_tensor& to, const otr_tensor& from) const {
  static_cast<void>(table_->stream_synchronize(opened_, stream_));
  const int32_t status = otr_tensor_copy(context_, &to, &from);
  examine("otr_tensor_copy", status);
  // Whatever is copied here is alive: an own sample, or what the library gave.
  if (status != OTR_OK && status != OTR_E_DEVICE_FAULT) expect_ok("otr_tensor_copy", status);
  return status == OTR_OK;
}

void Device::copy_later(const otr_tensor& to, const std::vector<uint8_t>& bytes) const {
  static_cast<void>(table_->copy(opened_, static_cast<uint8_t*>(to.data) + to.byte_offset,
                                 bytes.data(), bytes.size(), OTR_PLUGIN_HOST_TO_DEVICE, stream_));
}

void Device::expect_empty() const {
  uint64_t free_bytes = 0, total = 0;
  static_cast<void>(table_->memory_info(opened_, &free_bytes, &total));
  if (free_bytes != total) {
    broken(outrigger::format_text("{} of {} bytes of device {} are free at the end", free_bytes,
                                  total, id_));
  }
}

const Device& Devices::open(int32_t id) {
  const std::lock_guard lock(mutex_);
  auto& device = all_.at(static_cast<size_t>(id));
  if (!device) device = std::make_unique<Device>(id);
  return *device;
}

void Devices::close() {
  for (auto& device : all_) {
    if (device) device->expect_empty();
    device.reset();
  }
}

Memory::Memory(const Device* device, size_t bytes) : device_(device), size_(bytes) {
  if (device == nullptr) {
    host_.resize(bytes);
  } else {
    there_ = device->allocate(bytes);
  }
}

Memory::~Memory() {
  if (there_ != nullptr) device_->release(there_);
}

void put(const Device* device, const otr_tensor& to, const std::vector<uint8_t>& bytes) {
  if (bytes.empty() || to.data == nullptr) return;
  if (const Device* there = device_of(device, to)) {
    static_cast<void>(there->copy(to, on_host(to, const_cast<uint8_t*>(bytes.data()))));
  } else {
    std::memcpy(static_cast<uint8_t*>(to.data) + to.byte_offset, bytes.data(), bytes.size());
  }
}

std::vector<uint8_t> get(const Device* device, const otr_tensor& from) {
  std::vector<uint8_t> bytes(bytes_of(from));
  if (bytes.empty() || from.data == nullptr) return {};
  if (const Device* there = device_of(device, from)) {
    if (!there->copy(on_host(from, bytes.data()), from)) return {};
  } else {
    std::memcpy(bytes.data(), static_cast<const uint8_t*>(from.data) + from.byte_offset,
                bytes.size());
  }
  return bytes;
}

}  // namespace otr_fuzz
