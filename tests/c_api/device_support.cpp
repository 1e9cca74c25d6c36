// SPDX-License-Identifier: Apache-2.0
#include "device_support.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>

namespace otr_test {

const otr_device_plugin& simulated_table() {
  static const otr_device_plugin* const kTable = [] {
    const char* folder = std::getenv("OTR_PLUGIN_PATH");
    const std::string path =
        std::string(folder == nullptr ? "." : folder) + "/liboutrigger_simulated.so";
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) throw std::runtime_error(dlerror());
    const auto function =
        reinterpret_cast<otr_device_plugin_function>(dlsym(object, OTR_DEVICE_PLUGIN_SYMBOL));
    return function();
  }();
  return *kTable;
}

std::string on_stage(int32_t stage, const char* extra) {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "zero_optimization": {"stage": )" +
         std::to_string(stage) + extra + "}}";
}

Owned<otr_context> device_context() {
  Owned<otr_context> context = make_context();
  EXPECT_OK(otr_context_load_plugin(context.get(), "simulated"));
  return context;
}

DeviceTensor::DeviceTensor(otr_context* context, otr_device device, const Tensor& values)
    : context_(context),
      shape_(values.get().shape, values.get().shape + values.get().ndim),
      tensor_(values.get()) {
  tensor_.device = device;
  tensor_.shape = shape_.data();
  const size_t bytes = static_cast<size_t>(count_of(shape_)) * (tensor_.dtype.bits / 8U);
  EXPECT_OK(
      otr_device_allocate(context, device.device_type, device.device_id, bytes, &tensor_.data));
  EXPECT_OK(otr_tensor_copy(context, &tensor_, &values));
}

DeviceTensor::~DeviceTensor() {
  EXPECT_OK(otr_device_free(context_, tensor_.device.device_type, tensor_.device.device_id,
                            tensor_.data));
}

int64_t locked_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return std::stoll(line.substr(6));
  }
  return -1;
}

HostStream::HostStream() {
  EXPECT_EQ(simulated_table().open(0, &device), OTR_OK);
  EXPECT_EQ(simulated_table().stream_create(device, &stream), OTR_OK);
  EXPECT_OK(otr_call_info_init(&info, sizeof info));
  info.stream = stream;
}
HostStream::~HostStream() {
  simulated_table().stream_destroy(device, stream);
  simulated_table().close(device);
}

Locked::Locked(void* data, size_t bytes) : data_(data) {
  EXPECT_EQ(simulated_table().open(0, &device_), OTR_OK);
  EXPECT_EQ(simulated_table().pin(device_, data, bytes), OTR_OK) << simulated_table().last_error();
}
Locked::~Locked() {
  simulated_table().unpin(device_, data_);
  simulated_table().close(device_);
}

Values values_there(otr_context* context, const otr_tensor& tensor) {
  const char* dtype = tensor.dtype.code == OTR_DTYPE_BFLOAT ? "bfloat16"
                      : tensor.dtype.bits == 16             ? "float16"
                                                            : "float32";
  Tensor here = Tensor::filled(Shape(tensor.shape, tensor.shape + tensor.ndim), 0, dtype);
  EXPECT_OK(otr_tensor_copy(context, &here, &tensor));
  return here.values();
}

void DeviceSolo::pass(const std::vector<Engine::Gradient>& gradients, uint64_t stream) const {
  otr_call_info info;
  EXPECT_OK(otr_call_info_init(&info, sizeof info));
  info.stream = stream;
  otr_pass* pass = nullptr;
  ASSERT_OK(otr_pass_begin(engine.get(), nullptr, 0, &info, &pass));
  const Owned<otr_pass> owned(pass);
  for (const Engine::Gradient& g : gradients) {
    const DeviceTensor grad(context.get(), simulated(), Tensor(engine.shape_of(g.id), g.values));
    EXPECT_OK(otr_pass_add_grad(pass, g.id, &grad, &info));
  }
  Engine::end(owned);
}

}  // namespace otr_test
