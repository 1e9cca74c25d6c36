// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/memory.h"

#include "plugins/common/work.h"

namespace outrigger::cuda {

Memory::Memory(Gpu& gpu) : gpu_(gpu) {
  PoolProperties properties{};
  properties.allocation_type = kPinnedAllocation;
  properties.location = {kDeviceLocation, gpu.id()};
  gpu.call(gpu.driver.cuMemPoolCreate, &pool_, &properties);
  try {
    uint64_t all = UINT64_MAX;  // a wait of the host takes nothing from the pool
    gpu.call(gpu.driver.cuMemPoolSetAttribute, pool_, kReleaseThreshold, &all);
    gpu.call(gpu.driver.cuStreamCreateWithPriority, &stream_, kNonBlocking, 0);
  } catch (...) {
    gpu.try_call(gpu.driver.cuMemPoolDestroy, pool_);
    throw;
  }
}

Memory::~Memory() {
  for (const auto& [data, bytes] : live_) gpu_.try_call(gpu_.driver.cuMemFreeAsync, data, stream_);
  gpu_.try_call(gpu_.driver.cuStreamSynchronize, stream_);
  gpu_.try_call(gpu_.driver.cuStreamDestroy_v2, stream_);
  gpu_.try_call(gpu_.driver.cuMemPoolDestroy, pool_);
}

Pointer Memory::allocate(size_t bytes, Stream stream) {
  const auto& take = gpu_.driver.cuMemAllocFromPoolAsync;
  Pointer data = 0;
  Result result = take.at(&data, bytes, pool_, stream);
  if (result == kOutOfMemory) {  // what other streams have freed may be on its way
    gpu_.call(gpu_.driver.cuCtxSynchronize);
    gpu_.call(gpu_.driver.cuMemPoolTrimTo, pool_, size_t{0});
    result = take.at(&data, bytes, pool_, stream);
  }
  if (result == kOutOfMemory) {
    uint64_t free_bytes = 0, total = 0;
    info(free_bytes, total);
    plugins::fail(OTR_E_OUT_OF_MEMORY, std::to_string(bytes) + " bytes are not to be had of " +
                                           gpu_.text() + ": " + std::to_string(free_bytes) +
                                           " of " + std::to_string(total) + " are free (" +
                                           text_of(gpu_.driver, take.name, result) + ")");
  }
  if (result != kSuccess) gpu_.failed(take.name, result);
  const std::lock_guard lock(mutex_);
  live_.emplace(data, bytes);
  return data;
}

Pointer Memory::allocate_for_all(size_t bytes) {
  const Pointer data = allocate(bytes, stream_);
  try {
    gpu_.call(gpu_.driver.cuMemsetD8Async, data, static_cast<unsigned char>(0), bytes, stream_);
    gpu_.call(gpu_.driver.cuStreamSynchronize, stream_);
  } catch (...) {
    try {
      free(data, stream_);
    } catch (const plugins::Failure&) {  // it goes with the pool
    }
    throw;
  }
  return data;
}

size_t Memory::bytes_of(Pointer data) const {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(data);
  if (found == live_.end()) {
    plugins::fail(OTR_E_ARGUMENT, "this address is no live allocation of " + gpu_.text());
  }
  return found->second;
}

// Another thread may be given the same address as soon as it is free.
void Memory::free(Pointer data, Stream stream) {
  const size_t bytes = bytes_of(data);
  {
    const std::lock_guard lock(mutex_);
    live_.erase(data);
  }
  const auto& give_back = gpu_.driver.cuMemFreeAsync;
  const Result result = give_back.at(data, stream);
  if (result == kSuccess) return;
  {
    const std::lock_guard lock(mutex_);
    live_.emplace(data, bytes);
  }
  gpu_.failed(give_back.name, result);
}

void Memory::release(Pointer data, Stream stream) { free(data, stream); }

void Memory::release_after_all(Pointer data) {
  static_cast<void>(bytes_of(data));
  gpu_.call(gpu_.driver.cuCtxSynchronize);
  free(data, stream_);
  gpu_.call(gpu_.driver.cuStreamSynchronize, stream_);
  gpu_.call(gpu_.driver.cuMemPoolTrimTo, pool_, size_t{0});
}

uint64_t Memory::in_pool(int attribute) {
  uint64_t bytes = 0;
  gpu_.call(gpu_.driver.cuMemPoolGetAttribute, pool_, attribute, &bytes);
  return bytes;
}

void Memory::info(uint64_t& free_bytes, uint64_t& total) {
  size_t free_there = 0, all = 0;
  gpu_.call(gpu_.driver.cuMemGetInfo_v2, &free_there, &all);
  free_bytes = free_there + in_pool(kReservedBytes) - in_pool(kUsedBytes);
  total = all;
}

}  // namespace outrigger::cuda
