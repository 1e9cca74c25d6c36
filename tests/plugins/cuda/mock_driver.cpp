// SPDX-License-Identifier: Apache-2.0
// Devices, contexts, modules, streams and events of the mock driver.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/arguments.h"
#include "mock_state.h"

namespace outrigger::cuda {

using mock::called;
using mock::called_in;
using mock::number_of;
using mock::state;

namespace {

constexpr int kGreatestPriority = -5;

// Erases a handle; false: there is none.
template <typename Handle>
bool end_of(std::set<Handle>& all, Handle handle) {
  const std::lock_guard lock(state().mutex);
  return all.erase(handle) == 1;
}
template <typename Handle>
Handle kept(std::set<Handle>& all, std::unique_ptr<std::remove_pointer_t<Handle>> made) {
  const std::lock_guard lock(state().mutex);
  all.insert(made.get());
  return made.release();
}
bool is_event(Event event) {
  const std::lock_guard lock(state().mutex);
  return state().events.contains(event);
}

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
  return called("cuInit", [&]() -> Result {
    const std::lock_guard lock(state().mutex);
    if (flags != 0) return kInvalidValue;
    if (state().devices == 0) return kNoDevice;
    state().process = getpid();
    return kSuccess;
  });
}
Result cuDriverGetVersion(int* version) {
  return called("cuDriverGetVersion", [&] {
    *version = state().version;
    return kSuccess;
  });
}

// These two do not count: a failure's text is none.
Result cuGetErrorName(Result error, const char** text) {
  *text = error == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kNoDevice       ? "CUDA_ERROR_NO_DEVICE"
          : error == kInvalidImage   ? "CUDA_ERROR_INVALID_IMAGE"
          : error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == kLaunchFailed   ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == kInvalidHandle  ? "CUDA_ERROR_INVALID_HANDLE"
          : error == kInvalidValue   ? "CUDA_ERROR_INVALID_VALUE"
                                     : nullptr;
  return *text == nullptr ? kInvalidValue : kSuccess;
}
Result cuGetErrorString(Result error, const char** text) {
  thread_local std::array<char, 512> kept_text;
  const std::lock_guard lock(state().mutex);
  const std::string now = error == kLaunchFailed     ? state().why_lost_
                          : error == kOutOfMemory    ? "out of memory"
                          : error == kNoDevice       ? "no CUDA-capable device is detected"
                          : error == kIllegalAddress ? "an illegal memory access was encountered"
                                                     : "";
  kept_text[now.copy(kept_text.data(), kept_text.size() - 1)] = '\0';
  *text = now.empty() ? nullptr : kept_text.data();
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  return called("cuDeviceGetCount", [&] {
    *count = state().devices;
    return kSuccess;
  });
}
Result cuDeviceGet(Ordinal* device, int id) {
  return called("cuDeviceGet", [&] {
    *device = id + 100;  // not what it is not
    return id >= 0 && id < state().devices ? kSuccess : kInvalidDevice;
  });
}
Result cuDeviceGetName(char* name, int size, Ordinal device) {
  return called("cuDeviceGetName", [&] {
    const std::string text = "Mock " + std::to_string(device - 100);
    std::strncpy(name, text.c_str(), static_cast<size_t>(size));
    return kSuccess;
  });
}
Result cuDeviceGetAttribute(int* value, int attribute, Ordinal) {
  return called("cuDeviceGetAttribute", [&]() -> Result {
    switch (attribute) {
      case kMultiprocessorCount:
        *value = 2;
        return kSuccess;
      case kCapabilityMajor:
        *value = state().capability / 10;
        return kSuccess;
      case kCapabilityMinor:
        *value = state().capability % 10;
        return kSuccess;
      case kMemoryPoolsSupported:
        *value = state().memory_pools;
        return kSuccess;
      default:
        return kInvalidValue;
    }
  });
}

Result cuDevicePrimaryCtxRetain(Context* context, Ordinal device) {
  return called("cuDevicePrimaryCtxRetain", [&] {
    *context = &mock::context_of(device - 100);
    const std::lock_guard lock(state().mutex);
    ++(*context)->retained;
    return kSuccess;
  });
}
Result cuDevicePrimaryCtxRelease_v2(Ordinal device) {
  return called("cuDevicePrimaryCtxRelease_v2", [&] {
    CUctx_st& context = mock::context_of(device - 100);
    std::unique_ptr<simulated::Device> ended;  // after the lock: its threads may want that
    const std::lock_guard lock(state().mutex);
    if (--context.retained == 0) {
      state().left_bytes += context.device->allocated_bytes();
      ended = std::move(context.device);
    }
    return context.retained >= 0 ? kSuccess : kInvalidContext;
  });
}
Result cuCtxPushCurrent_v2(Context context) {
  return called("cuCtxPushCurrent_v2", [&]() -> Result {
    if (context == nullptr || context->retained == 0) return kInvalidContext;
    mock::stack().push(context);
    return kSuccess;
  });
}
Result cuCtxPopCurrent_v2(Context* context) {
  // Its failure would leave the thread with a context that no test could tell from a fault.
  if (mock::stack().empty()) return kInvalidContext;
  *context = mock::stack().back();
  mock::stack().pop();
  return kSuccess;
}
Result cuCtxSynchronize() {
  return called_in("cuCtxSynchronize", [](CUctx_st& c) {
    c.device->synchronize();
    return kSuccess;
  });
}
Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return called_in("cuCtxGetStreamPriorityRange", [&](CUctx_st&) {
    *least = 0;
    *greatest = kGreatestPriority;
    return kSuccess;
  });
}

Result cuModuleLoadDataEx(Module* module, const void* image, unsigned, int*, void**) {
  return called_in("cuModuleLoadDataEx", [&](CUctx_st&) -> Result {
    if (image == nullptr) return kInvalidValue;
    *module = kept(state().modules, std::make_unique<CUmod_st>());
    return kSuccess;
  });
}
Result cuModuleUnload(Module module) {
  return called_in("cuModuleUnload", [&](CUctx_st&) -> Result {
    if (!end_of(state().modules, module)) return kInvalidHandle;
    delete module;
    return kSuccess;
  });
}
Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  return called_in("cuModuleGetFunction", [&](CUctx_st&) -> Result {
    for (int i = 0; i < kernels::cuda::kKernels; ++i) {
      if (std::strcmp(kernels::cuda::kKernelNames[i], name) != 0) continue;
      module->functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{i}));
      *function = module->functions.back().get();
      return kSuccess;
    }
    return kNotFound;
  });
}
Result cuLaunchKernel(Function function, unsigned x, unsigned y, unsigned z, unsigned threads,
                      unsigned threads_y, unsigned threads_z, unsigned shared, Stream stream,
                      void** parameters, void** extra) {
  return called_in("cuLaunchKernel", [&](CUctx_st& c) -> Result {
    if (y * z * threads_y * threads_z != 1 || shared != 0 || extra != nullptr || x == 0) {
      return kInvalidValue;
    }
    {
      const std::lock_guard lock(state().mutex);
      state().most_blocks = std::max<int64_t>(state().most_blocks, x);
    }
    return mock::launch(c, function->kernel, x, threads, stream, parameters[0]);
  });
}
Result cuLaunchHostFunc(Stream stream, HostFunction function, void* data) {
  return called_in("cuLaunchHostFunc", [&](CUctx_st& c) {
    c.device->call(number_of(c, stream), [function, data] { function(data); });
    return kSuccess;
  });
}

Result cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  return called_in("cuStreamCreateWithPriority", [&](CUctx_st& c) -> Result {
    if (flags != kNonBlocking || priority > 0 || priority < kGreatestPriority) {
      return kInvalidValue;
    }
    *stream =
        kept(state().streams,
             std::make_unique<CUstream_st>(CUstream_st{&c, c.device->create_stream(), priority}));
    return kSuccess;
  });
}
Result cuStreamDestroy_v2(Stream stream) {
  return called_in("cuStreamDestroy_v2", [&](CUctx_st& c) -> Result {
    if (!end_of(state().streams, stream)) return kInvalidHandle;
    c.device->destroy_stream(stream->number);
    delete stream;
    return kSuccess;
  });
}
Result cuStreamSynchronize(Stream stream) {
  return called_in("cuStreamSynchronize", [&](CUctx_st& c) {
    c.device->synchronize(number_of(c, stream));
    return kSuccess;
  });
}
Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  return called_in("cuStreamWaitEvent", [&](CUctx_st& c) -> Result {
    if (!is_event(event)) return kInvalidHandle;
    if (flags != 0) return kInvalidValue;
    if (event->at) c.device->wait(number_of(c, stream), event->at);
    return kSuccess;
  });
}

Result cuEventCreate(Event* event, unsigned flags) {
  return called_in("cuEventCreate", [&](CUctx_st& c) -> Result {
    if ((flags & kDisableTiming) == 0) return kInvalidValue;  // it would be slower
    *event = kept(state().events, std::make_unique<CUevent_st>(CUevent_st{&c, nullptr}));
    return kSuccess;
  });
}
Result cuEventDestroy_v2(Event event) {
  return called_in("cuEventDestroy_v2", [&](CUctx_st&) -> Result {
    if (!end_of(state().events, event)) return kInvalidHandle;
    delete event;
    return kSuccess;
  });
}
Result cuEventRecord(Event event, Stream stream) {
  return called_in("cuEventRecord", [&](CUctx_st& c) -> Result {
    if (!is_event(event) || event->context != &c) return kInvalidHandle;
    event->at = c.device->record(number_of(c, stream));
    return kSuccess;
  });
}
Result cuEventQuery(Event event) {
  return called_in("cuEventQuery", [&](CUctx_st& c) -> Result {
    if (!is_event(event)) return kInvalidHandle;
    return event->at == nullptr || c.device->is_done(*event->at) ? kSuccess : kNotReady;
  });
}
Result cuEventSynchronize(Event event) {
  return called_in("cuEventSynchronize", [&](CUctx_st& c) -> Result {
    if (!is_event(event)) return kInvalidHandle;
    if (event->at) c.device->synchronize(*event->at);
    return kSuccess;
  });
}

}  // extern "C"
}  // namespace outrigger::cuda
