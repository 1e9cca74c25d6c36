// SPDX-License-Identifier: Apache-2.0
// The CUDA plugin under the simulated device's name and type, so that tests of a device run on it
// as they are: OTR_PLUGIN_PATH names its folder. Settings are the mock driver's, where
// OTR_CUDA_DRIVER names it, and all else is the plugin's. On a GPU nothing can be set: what needs
// that fails.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "mock.h"
#include "outrigger_plugin.h"

namespace {

template <typename Pointer>
Pointer found(void* object, const char* name) {
  if (object == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Pointer>(dlsym(object, name));
}

const otr_device_plugin& cuda() {
  static const otr_device_plugin* const kTable = [] {
    const char* path = std::getenv("OTR_CUDA_PLUGIN");  // of a tree that was built elsewhere
    void* object =
        dlopen(path == nullptr ? OTR_CUDA_PLUGIN : path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return found<otr_device_plugin_function>(object, OTR_DEVICE_PLUGIN_SYMBOL)();
  }();
  return *kTable;
}

// Null on a GPU.
void* mock() {
  static void* const kObject = [] {
    const char* path = std::getenv("OTR_CUDA_DRIVER");
    return path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }();
  return kObject;
}

constexpr int32_t kDevices = 8;  // as the simulated ones are, and the mock driver's

std::mutex mutex;
std::map<otr_plugin_device*, int32_t> ids;
thread_local bool is_mocks_error = false;

int32_t id_of(otr_plugin_device* device) {
  const std::lock_guard lock(mutex);
  return ids.at(device);
}

// A test's several devices are one, where there is one.
int32_t open(int32_t id, otr_plugin_device** out) {
  int32_t there = 0;
  const bool is_counted = cuda().device_count(&there) == OTR_OK && there > 0;
  const int32_t status = cuda().open(is_counted && id >= 0 && id < kDevices ? id % there : id, out);
  if (status != OTR_OK) return status;
  const std::lock_guard lock(mutex);
  ids[*out] = id;
  return OTR_OK;
}

int32_t device_count(int32_t* out) {
  const int32_t status = cuda().device_count(out);
  if (status == OTR_OK) *out = kDevices;
  return status;
}

int32_t told(int32_t status) {
  is_mocks_error = status != OTR_OK;
  return status;
}
int32_t set_value(otr_plugin_device* device, const char* name, double value) {
  if (mock() == nullptr) {
    std::fprintf(stderr, "a GPU has no \"%s\" to set\n", name);
    std::_Exit(77);
  }
  return told(found<decltype(&otr_mock_cuda_device_set)>(mock(), "otr_mock_cuda_device_set")(
      id_of(device), name, value));
}
int32_t get_value(otr_plugin_device* device, const char* name, double* out) {
  const int32_t status = cuda().get_value(device, name, out);
  if (status == OTR_OK || mock() == nullptr) return status;
  return told(found<decltype(&otr_mock_cuda_device_get)>(mock(), "otr_mock_cuda_device_get")(
      id_of(device), name, out));
}

const char* last_error() {
  if (!is_mocks_error) return cuda().last_error();
  is_mocks_error = false;
  return found<decltype(&otr_mock_cuda_text)>(mock(), "otr_mock_cuda_text")();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const otr_device_plugin* otr_device_plugin_table(
    void) {
  static otr_device_plugin table;
  table = cuda();
  table.name = "simulated";
  table.device_type = OTR_DEVICE_EXTENSION;
  table.device_count = device_count;
  table.open = open;
  table.set_value = set_value;
  table.get_value = get_value;
  table.last_error = last_error;
  return &table;
}
