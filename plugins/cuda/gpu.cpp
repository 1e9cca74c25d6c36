// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gpu.h"

#include <array>

#include "plugins/common/work.h"
#include "plugins/cuda/image.h"

namespace outrigger::cuda {

Gpu::Gpu(int32_t id) : driver(cuda::driver()), id_(id) {
  int count = 0;
  call(driver.cuDeviceGetCount, &count);
  if (id < 0 || id >= count) {
    plugins::fail(OTR_E_ARGUMENT, "CUDA device " + std::to_string(id) +
                                      " does not exist; there are " + std::to_string(count) +
                                      ", from 0 on (CUDA_VISIBLE_DEVICES hides some)");
  }
  call(driver.cuDeviceGet, &ordinal_, id);
  std::array<char, 256> name{};
  call(driver.cuDeviceGetName, name.data(), static_cast<int>(name.size()), ordinal_);
  name_ = name.data();
  const int major = attribute(kCapabilityMajor), minor = attribute(kCapabilityMinor);
  if (major * 10 + minor < kLeastCapability) {
    plugins::fail(OTR_E_UNSUPPORTED, text() + " has compute capability " + std::to_string(major) +
                                         "." + std::to_string(minor) + "; the kernels need " +
                                         std::to_string(kLeastCapability / 10) + "." +
                                         std::to_string(kLeastCapability % 10) + " or more");
  }
  if (attribute(kMemoryPoolsSupported) == 0) {
    plugins::fail(OTR_E_UNSUPPORTED, text() + " has no memory pools under this driver, of CUDA " +
                                         std::to_string(driver.version / 1000) + "." +
                                         std::to_string(driver.version % 1000 / 10));
  }
  multiprocessors_ = attribute(kMultiprocessorCount);
  call(driver.cuDevicePrimaryCtxRetain, &context_, ordinal_);
}

Gpu::~Gpu() { try_call(driver.cuDevicePrimaryCtxRelease_v2, ordinal_); }

void Gpu::failed(const char* call, Result result) {
  std::string text = text_of(driver, call, result);
  if (is_final(result)) {
    const std::lock_guard lock(mutex_);
    if (end_.empty()) end_ = text;
  }
  plugins::fail(status_of(result), std::move(text));
}

void Gpu::require_alive() const {
  const std::lock_guard lock(mutex_);
  if (!end_.empty()) plugins::fail(OTR_E_DEVICE_FAULT, text() + " is lost: " + end_);
}

bool Gpu::is_alive() const {
  const std::lock_guard lock(mutex_);
  return end_.empty();
}

int Gpu::attribute(int which) const {
  int value = 0;
  const Result result = driver.cuDeviceGetAttribute.at(&value, which, ordinal_);
  if (result != kSuccess) {
    plugins::fail(status_of(result), text_of(driver, driver.cuDeviceGetAttribute.name, result));
  }
  return value;
}

std::string Gpu::text() const {
  return "CUDA device " + std::to_string(id_) + (name_.empty() ? "" : " (" + name_ + ")");
}

}  // namespace outrigger::cuda
