// SPDX-License-Identifier: Apache-2.0
// Memory and copies of the mock driver.
#include <algorithm>
#include <cstdlib>

#include "mock_state.h"

namespace outrigger::cuda {

using mock::called_in;
using mock::number_of;
using mock::state;

namespace {

void* address_of(Pointer pointer) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(pointer));
}

Result copied(CUctx_st& c, void* to, const void* from, size_t bytes, int32_t direction,
              Stream stream) {
  c.device->copy(to, from, bytes, direction, number_of(c, stream));
  return kSuccess;
}

}  // namespace

extern "C" {

Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  return called_in("cuMemGetInfo_v2", [&](CUctx_st& c) {
    uint64_t left = 0, all = 0;
    c.device->memory_info(left, all);
    *free_bytes = left;
    *total = all;
    return kSuccess;
  });
}

Result cuMemPoolCreate(Pool* pool, const PoolProperties* properties) {
  return called_in("cuMemPoolCreate", [&](CUctx_st& c) -> Result {
    if (properties->allocation_type != kPinnedAllocation || properties->handle_types != 0 ||
        properties->location.type != kDeviceLocation || properties->location.id != c.id) {
      return kInvalidValue;
    }
    const std::lock_guard lock(state().mutex);
    *pool = new CUmemPoolHandle_st{&c};
    state().pools.insert(*pool);
    return kSuccess;
  });
}
Result cuMemPoolDestroy(Pool pool) {
  return called_in("cuMemPoolDestroy", [&](CUctx_st&) -> Result {
    const std::lock_guard lock(state().mutex);
    if (state().pools.erase(pool) == 0) return kInvalidValue;
    delete pool;
    return kSuccess;
  });
}
Result cuMemPoolSetAttribute(Pool, int attribute, void*) {
  return called_in("cuMemPoolSetAttribute", [&](CUctx_st&) {
    return attribute == kReleaseThreshold ? kSuccess : kInvalidValue;
  });
}
Result cuMemPoolGetAttribute(Pool pool, int attribute, void* value) {
  return called_in("cuMemPoolGetAttribute", [&](CUctx_st&) -> Result {
    if (attribute != kReservedBytes && attribute != kUsedBytes) return kInvalidValue;
    *static_cast<uint64_t*>(value) = pool->context->device->allocated_bytes();
    return kSuccess;
  });
}
Result cuMemPoolTrimTo(Pool, size_t) {
  return called_in("cuMemPoolTrimTo", [](CUctx_st&) { return kSuccess; });
}
Result cuMemAllocFromPoolAsync(Pointer* data, size_t bytes, Pool pool, Stream stream) {
  return called_in("cuMemAllocFromPoolAsync", [&](CUctx_st& c) -> Result {
    if (pool->context != &c || bytes == 0) return kInvalidValue;
    void* made = nullptr;
    try {
      made = c.device->allocate(bytes, number_of(c, stream));
    } catch (const plugins::Failure& failure) {
      // What is not there is not there either when it is asked for again at once.
      thread_local bool is_second = false;
      is_second = !is_second;
      if (is_second && failure.status == OTR_E_OUT_OF_MEMORY) {
        c.device->set_value("fail_allocation", 1);
      }
      throw;
    }
    *data = static_cast<Pointer>(reinterpret_cast<uintptr_t>(made));
    return kSuccess;
  });
}
Result cuMemFreeAsync(Pointer data, Stream stream) {
  return called_in("cuMemFreeAsync", [&](CUctx_st& c) {
    c.device->release(address_of(data), number_of(c, stream));
    return kSuccess;
  });
}

Result cuMemHostAlloc(void** data, size_t bytes, unsigned flags) {
  return called_in("cuMemHostAlloc", [&](CUctx_st& c) -> Result {
    constexpr size_t kPage = 4096;
    if (flags != kPortable) return kInvalidValue;
    const size_t whole = (bytes + kPage - 1) / kPage * kPage;
    void* made = std::aligned_alloc(kPage, whole);
    try {
      c.device->pin(made, whole);
    } catch (...) {
      std::free(made);
      throw;
    }
    *data = made;
    const std::lock_guard lock(state().mutex);
    state().host_memory.emplace(made, whole);
    return kSuccess;
  });
}
Result cuMemFreeHost(void* data) {
  return called_in("cuMemFreeHost", [&](CUctx_st& c) -> Result {
    {
      const std::lock_guard lock(state().mutex);
      if (state().host_memory.erase(data) == 0) return kInvalidValue;
    }
    c.device->unpin(data);
    std::free(data);
    return kSuccess;
  });
}
Result cuMemHostRegister_v2(void* data, size_t bytes, unsigned flags) {
  return called_in("cuMemHostRegister_v2", [&](CUctx_st& c) -> Result {
    if (flags != kPortable || bytes == 0) return kInvalidValue;
    try {
      c.device->pin(data, bytes);
    } catch (const plugins::Failure& failure) {
      if (failure.status == OTR_E_ARGUMENT) return kAlreadyRegistered;
      throw;
    }
    return kSuccess;
  });
}
Result cuMemHostUnregister(void* data) {
  return called_in("cuMemHostUnregister", [&](CUctx_st& c) -> Result {
    if (!state().pages->has(data, 1)) return kNotRegistered;
    c.device->unpin(data);
    return kSuccess;
  });
}
Result cuPointerGetAttribute(void* value, int attribute, Pointer data) {
  return called_in("cuPointerGetAttribute", [&](CUctx_st&) -> Result {
    if (attribute != kMemoryType || !state().pages->has(address_of(data), 1)) return kInvalidValue;
    *static_cast<unsigned*>(value) = static_cast<unsigned>(kHostMemory);
    return kSuccess;
  });
}

Result cuMemsetD8Async(Pointer data, unsigned char value, size_t bytes, Stream stream) {
  return called_in("cuMemsetD8Async", [&](CUctx_st& c) {
    std::byte* const at = c.device->inside(address_of(data), bytes, "the memory");
    const simulated::Touch touch{static_cast<const std::byte*>(address_of(data)), bytes, true};
    c.device->launch(number_of(c, stream), "zero", {&touch, 1},
                     [=] { std::fill_n(at, bytes, std::byte{value}); });
    return kSuccess;
  });
}
Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, Stream stream) {
  return called_in("cuMemcpyHtoDAsync_v2", [&](CUctx_st& c) {
    return copied(c, address_of(to), from, bytes, OTR_PLUGIN_HOST_TO_DEVICE, stream);
  });
}
Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, Stream stream) {
  return called_in("cuMemcpyDtoHAsync_v2", [&](CUctx_st& c) {
    return copied(c, to, address_of(from), bytes, OTR_PLUGIN_DEVICE_TO_HOST, stream);
  });
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, Stream stream) {
  return called_in("cuMemcpyDtoDAsync_v2", [&](CUctx_st& c) {
    return copied(c, address_of(to), address_of(from), bytes, OTR_PLUGIN_ON_DEVICE, stream);
  });
}

}  // extern "C"
}  // namespace outrigger::cuda
