// SPDX-License-Identifier: Apache-2.0
// What tests of an engine on a device share: the simulated device as its host sees it, memory and
// streams of its own included, as a framework has them.
#pragma once

#include "outrigger_plugin.h"
#include "support.h"

namespace otr_test {

// The plugin's table, as a framework that knows the device would use it.
const otr_device_plugin& simulated_table();

inline constexpr int32_t kSimulated = OTR_DEVICE_EXTENSION;  // device_type
inline otr_device simulated(int32_t id = 0) { return {kSimulated, id}; }

// A configuration; extra: more members of zero_optimization.
std::string on_stage(int32_t stage, const char* extra = "");

// A context with the simulated device.
Owned<otr_context> device_context();

// A tensor on a device.
class DeviceTensor {
 public:
  DeviceTensor(otr_context* context, otr_device device, const Tensor& values);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  const otr_tensor* operator&() const { return &tensor_; }  // NOLINT(google-runtime-operator)
  otr_tensor& get() { return tensor_; }

 private:
  otr_context* context_;
  Shape shape_;
  otr_tensor tensor_;
};

// A stream of the host's own on simulated device 0, and what names it in a call.
struct HostStream {
  HostStream();
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  otr_plugin_device* device = nullptr;
  uint64_t stream = 0;
  otr_call_info info;
};

// Host memory whose pages simulated device 0 has locked: its copies run beside the host.
class Locked {
 public:
  Locked(void* data, size_t bytes);
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  otr_plugin_device* device_ = nullptr;
  void* data_;
};

// What this process has locked, in KiB.
int64_t locked_kib();

// What a device's tensor holds.
Values values_there(otr_context* context, const otr_tensor& tensor);

// An engine on simulated device 0, on a group of one.
struct DeviceSolo {
  explicit DeviceSolo(const std::string& config)
      : context(device_context()), comm(make_self(context.get())), engine(comm.get(), config) {
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 0));
  }
  // One pass with these gradients, on this stream.
  void pass(const std::vector<Engine::Gradient>& gradients, uint64_t stream = 0) const;
  Owned<otr_context> context;
  Owned<otr_comm> comm;
  Engine engine;
};

}  // namespace otr_test
