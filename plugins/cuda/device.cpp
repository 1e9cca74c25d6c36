// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device.h"

#include <algorithm>
#include <utility>

#include "plugins/common/work.h"
#include "plugins/cuda/image.h"

namespace outrigger::cuda {

using plugins::fail;

namespace {

// 0 is the default stream, too.
Stream stream_of(uint64_t number) {
  return reinterpret_cast<Stream>(static_cast<uintptr_t>(number == 0 ? kLegacyStream : number));
}
Pointer pointer_of(const void* data) {
  return static_cast<Pointer>(reinterpret_cast<uintptr_t>(data));
}

}  // namespace

Kernels::Kernels(Gpu& gpu) : gpu_(gpu) {
  const Image compiled = image();
  try {
    gpu.call(gpu.driver.cuModuleLoadDataEx, &module_, compiled.data, 0U, nullptr, nullptr);
  } catch (const plugins::Failure& failure) {
    fail(failure.status, failure.text + std::string(compiled.advice));
  }
  try {
    for (size_t i = 0; i < functions_.size(); ++i) {
      gpu.call(gpu.driver.cuModuleGetFunction, &functions_[i], module_,
               kernels::cuda::kKernelNames[i]);
    }
  } catch (...) {
    gpu.try_call(gpu.driver.cuModuleUnload, module_);
    throw;
  }
}
Kernels::~Kernels() { gpu_.try_call(gpu_.driver.cuModuleUnload, module_); }

Device::Device(int32_t id)
    : gpu_(id),
      current_(std::in_place, gpu_),
      memory_(gpu_),
      kernels_(gpu_),
      results_(gpu_, memory_),
      counts_{&allocations_,    &stream_allocations_, &synchronizations_, &event_synchronizations_,
              &unpinned_bytes_, &bytes_to_device_,    &bytes_to_host_,    &launches_} {
  gpu_.call(gpu_.driver.cuCtxGetStreamPriorityRange, &least_priority_, &greatest_priority_);
  priority_ = greatest_priority_;  // short work that others wait for, beside a long backward
  current_.reset();
}

Device::~Device() {
  try {
    current_.emplace(gpu_);
  } catch (const plugins::Failure&) {  // the driver is gone, and with it what was there
  }
  gpu_.try_call(gpu_.driver.cuCtxSynchronize);
  for (void* data : pinned_) pages().unlock(gpu_, data);
  for (const Event event : all_) gpu_.try_call(gpu_.driver.cuEventDestroy_v2, event);
  for (const Stream stream : streams_) gpu_.try_call(gpu_.driver.cuStreamDestroy_v2, stream);
}

std::string Device::names() const {
  std::string text = "stream_priority, and the counts";
  for (const Count* count : counts_) {
    text += std::string(count == counts_.front() ? " " : ", ") + count->name;
  }
  return text;
}

// Larger is sooner, as a number; CUDA's own go down from the least to the greatest.
void Device::set_value(const std::string& name, double value) {
  if (name != "stream_priority") {
    fail(OTR_E_NOT_FOUND, "a CUDA device has no \"" + name + "\" to set; there are " + names() +
                              ", which cannot be set");
  }
  const int most = least_priority_ - greatest_priority_;
  const bool is_legal = value >= 0 && value <= most;
  if (!is_legal) {
    fail(OTR_E_ARGUMENT, name + " = " + std::to_string(value) + "; legal on " + gpu_.text() +
                             " is 0 to " + std::to_string(most));
  }
  priority_ = least_priority_ - static_cast<int>(value);
}

double Device::value(const std::string& name) const {
  if (name == "stream_priority") return least_priority_ - priority_;
  for (const Count* count : counts_) {
    if (name == count->name) return static_cast<double>(count->value);
  }
  fail(OTR_E_NOT_FOUND, "a CUDA device has no \"" + name + "\"; there are " + names());
}

void* Device::allocate(size_t bytes, uint64_t stream) {
  const bool for_all = stream == OTR_PLUGIN_NO_STREAM;
  ++(for_all ? allocations_ : stream_allocations_).value;
  const Pointer data =
      for_all ? memory_.allocate_for_all(bytes) : memory_.allocate(bytes, stream_of(stream));
  return reinterpret_cast<void*>(static_cast<uintptr_t>(data));
}

// Of a device that is lost it goes at the end, with the rest.
void Device::release(void* data, uint64_t stream) {
  if (!gpu_.is_alive()) return;
  try {
    if (stream != OTR_PLUGIN_NO_STREAM) {
      return memory_.release(pointer_of(data), stream_of(stream));
    }
    ++synchronizations_.value;
    memory_.release_after_all(pointer_of(data));
  } catch (const plugins::Failure&) {
    if (gpu_.is_alive()) throw;
  }
}

void Device::pin(void* data, size_t bytes) {
  pages().lock(gpu_, data, bytes);
  const std::lock_guard lock(mutex_);
  pinned_.insert(data);
}

void Device::unpin(void* data) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(data);
    if (found == pinned_.end()) return;
    pinned_.erase(found);
  }
  pages().unlock(gpu_, data);
}

void Device::synchronize() {
  ++synchronizations_.value;
  gpu_.call(gpu_.driver.cuCtxSynchronize);
}

uint64_t Device::create_stream() {
  Stream stream = nullptr;
  gpu_.call(gpu_.driver.cuStreamCreateWithPriority, &stream, kNonBlocking, priority_.load());
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
  return reinterpret_cast<uintptr_t>(stream);
}

void Device::destroy_stream(uint64_t number) noexcept {
  const Stream stream = stream_of(number);
  {
    const std::lock_guard lock(mutex_);
    if (streams_.erase(stream) == 0) return;
  }
  gpu_.try_call(gpu_.driver.cuStreamSynchronize, stream);
  gpu_.try_call(gpu_.driver.cuStreamDestroy_v2, stream);
}

void Device::synchronize(uint64_t stream) {
  ++synchronizations_.value;
  gpu_.call(gpu_.driver.cuStreamSynchronize, stream_of(stream));
}

Event Device::record(uint64_t stream) {
  Event event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      event = unused_.back();
      unused_.pop_back();
    }
  }
  if (event == nullptr) {
    // A host that waits leaves its core to those that update.
    gpu_.call(gpu_.driver.cuEventCreate, &event, kBlockingSync | kDisableTiming);
    const std::lock_guard lock(mutex_);
    all_.push_back(event);
    unused_.reserve(all_.size());
  }
  try {
    gpu_.call(gpu_.driver.cuEventRecord, event, stream_of(stream));
  } catch (...) {
    forget(event);
    throw;
  }
  return event;
}

void Device::synchronize(Event event) {
  ++event_synchronizations_.value;
  gpu_.call(gpu_.driver.cuEventSynchronize, event);
}

bool Device::is_done(Event event) {
  const auto& query = gpu_.driver.cuEventQuery;
  const Result result = query.at(event);
  if (result != kSuccess && result != kNotReady) gpu_.failed(query.name, result);
  return result == kSuccess;
}

void Device::wait(uint64_t stream, Event event) {
  gpu_.call(gpu_.driver.cuStreamWaitEvent, stream_of(stream), event, 0U);
}

void Device::forget(Event event) {
  const std::lock_guard lock(mutex_);
  unused_.push_back(event);
}

void Device::copy(void* to, const void* from, size_t bytes, int32_t direction, uint64_t number) {
  const bool to_host = direction == OTR_PLUGIN_DEVICE_TO_HOST;
  const bool from_host = direction == OTR_PLUGIN_HOST_TO_DEVICE;
  if (!to_host && !from_host && direction != OTR_PLUGIN_ON_DEVICE) {
    fail(OTR_E_ARGUMENT, "copy direction " + std::to_string(direction) + " is none of the three");
  }
  const Stream stream = stream_of(number);
  if (!to_host && !from_host) {
    if (bytes == 0) return;
    ++launches_.value;
    return gpu_.call(gpu_.driver.cuMemcpyDtoDAsync_v2, pointer_of(to), pointer_of(from), bytes,
                     stream);
  }
  (from_host ? bytes_to_device_ : bytes_to_host_).value += static_cast<int64_t>(bytes);
  for (size_t at = 0; at < bytes;) {
    auto* const target = static_cast<std::byte*>(to) + at;
    const auto* const source = static_cast<const std::byte*>(from) + at;
    const Pages::Run run = pages().run_of(gpu_, from_host ? source : target, bytes - at);
    if (!run.is_locked) unpinned_bytes_.value += static_cast<int64_t>(run.bytes);
    if (from_host) {
      gpu_.call(gpu_.driver.cuMemcpyHtoDAsync_v2, pointer_of(target), source, run.bytes, stream);
    } else {
      gpu_.call(gpu_.driver.cuMemcpyDtoHAsync_v2, target, pointer_of(source), run.bytes, stream);
    }
    at += run.bytes;
  }
}

void Device::zero(void* data, size_t bytes, uint64_t stream) {
  if (bytes == 0) return;
  ++launches_.value;
  gpu_.call(gpu_.driver.cuMemsetD8Async, pointer_of(data), static_cast<unsigned char>(0), bytes,
            stream_of(stream));
}

}  // namespace outrigger::cuda
