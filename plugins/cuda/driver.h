// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's driver interface that the plugin uses, in declarations of our own, so that it
// builds without CUDA's headers and starts without its libraries. Where those headers are, a test
// compares the two (tests/plugins/cuda/header_test.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outrigger::cuda {

using Result = int;
using Ordinal = int;  // CUdevice
using Pointer = unsigned long long;
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Pool = struct CUmemPoolHandle_st*;
using HostFunction = void (*)(void*);

struct Location {
  int type, id;
};
struct PoolProperties {
  int allocation_type, handle_types;
  Location location;
  void* security;
  size_t most_bytes;
  unsigned short usage;
  unsigned char reserved[54];
};

// Results; the first is not a failure.
inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                        kDeinitialized = 4, kNoDevice = 100, kInvalidDevice = 101,
                        kInvalidImage = 200, kInvalidContext = 201, kNoBinaryForGpu = 209,
                        kEccUncorrectable = 214, kInvalidPtx = 218, kNvlinkUncorrectable = 220,
                        kUnsupportedPtxVersion = 222, kContained = 226, kInvalidHandle = 400,
                        kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
                        kLaunchTimeout = 702, kContextIsDestroyed = 709, kAssert = 710,
                        kAlreadyRegistered = 712, kNotRegistered = 713, kHardwareStackError = 714,
                        kIllegalInstruction = 715, kMisalignedAddress = 716,
                        kInvalidAddressSpace = 717, kInvalidPc = 718, kLaunchFailed = 719,
                        kNotSupported = 801, kUnknown = 999;
// Attributes of a device, of a pool, of an address.
inline constexpr int kMultiprocessorCount = 16, kCapabilityMajor = 75, kCapabilityMinor = 76,
                     kMemoryPoolsSupported = 115;
inline constexpr int kReleaseThreshold = 4, kReservedBytes = 5, kUsedBytes = 7;
inline constexpr int kMemoryType = 2, kHostMemory = 1;
// Flags and kinds.
inline constexpr int kPinnedAllocation = 1, kDeviceLocation = 1;
inline constexpr unsigned kNonBlocking = 1, kBlockingSync = 1, kDisableTiming = 2, kPortable = 1;
// Streams with numbers of their own, as DLPack has them: of 1 and 2.
inline constexpr uint64_t kLegacyStream = 1, kPerThreadStream = 2;

// FUNCTION(symbol, parameters…): every function returns a Result. A symbol is the version of CUDA
// 11.2 or before, so that every driver since then has it.
#define OTR_CUDA_FUNCTIONS(FUNCTION)                                                             \
  FUNCTION(cuInit, unsigned)                                                                     \
  FUNCTION(cuDriverGetVersion, int*)                                                             \
  FUNCTION(cuGetErrorName, Result, const char**)                                                 \
  FUNCTION(cuGetErrorString, Result, const char**)                                               \
  FUNCTION(cuDeviceGetCount, int*)                                                               \
  FUNCTION(cuDeviceGet, Ordinal*, int)                                                           \
  FUNCTION(cuDeviceGetName, char*, int, Ordinal)                                                 \
  FUNCTION(cuDeviceGetAttribute, int*, int, Ordinal)                                             \
  FUNCTION(cuDevicePrimaryCtxRetain, Context*, Ordinal)                                          \
  FUNCTION(cuDevicePrimaryCtxRelease_v2, Ordinal)                                                \
  FUNCTION(cuCtxPushCurrent_v2, Context)                                                         \
  FUNCTION(cuCtxPopCurrent_v2, Context*)                                                         \
  FUNCTION(cuCtxSynchronize)                                                                     \
  FUNCTION(cuCtxGetStreamPriorityRange, int*, int*)                                              \
  FUNCTION(cuModuleLoadDataEx, Module*, const void*, unsigned, int*, void**)                     \
  FUNCTION(cuModuleUnload, Module)                                                               \
  FUNCTION(cuModuleGetFunction, Function*, Module, const char*)                                  \
  FUNCTION(cuLaunchKernel, Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
           unsigned, Stream, void**, void**)                                                     \
  FUNCTION(cuLaunchHostFunc, Stream, HostFunction, void*)                                        \
  FUNCTION(cuMemGetInfo_v2, size_t*, size_t*)                                                    \
  FUNCTION(cuMemPoolCreate, Pool*, const PoolProperties*)                                        \
  FUNCTION(cuMemPoolDestroy, Pool)                                                               \
  FUNCTION(cuMemPoolSetAttribute, Pool, int, void*)                                              \
  FUNCTION(cuMemPoolGetAttribute, Pool, int, void*)                                              \
  FUNCTION(cuMemPoolTrimTo, Pool, size_t)                                                        \
  FUNCTION(cuMemAllocFromPoolAsync, Pointer*, size_t, Pool, Stream)                              \
  FUNCTION(cuMemFreeAsync, Pointer, Stream)                                                      \
  FUNCTION(cuMemHostAlloc, void**, size_t, unsigned)                                             \
  FUNCTION(cuMemFreeHost, void*)                                                                 \
  FUNCTION(cuMemHostRegister_v2, void*, size_t, unsigned)                                        \
  FUNCTION(cuMemHostUnregister, void*)                                                           \
  FUNCTION(cuPointerGetAttribute, void*, int, Pointer)                                           \
  FUNCTION(cuMemsetD8Async, Pointer, unsigned char, size_t, Stream)                              \
  FUNCTION(cuMemcpyHtoDAsync_v2, Pointer, const void*, size_t, Stream)                           \
  FUNCTION(cuMemcpyDtoHAsync_v2, void*, Pointer, size_t, Stream)                                 \
  FUNCTION(cuMemcpyDtoDAsync_v2, Pointer, Pointer, size_t, Stream)                               \
  FUNCTION(cuStreamCreateWithPriority, Stream*, unsigned, int)                                   \
  FUNCTION(cuStreamDestroy_v2, Stream)                                                           \
  FUNCTION(cuStreamSynchronize, Stream)                                                          \
  FUNCTION(cuStreamWaitEvent, Stream, Event, unsigned)                                           \
  FUNCTION(cuEventCreate, Event*, unsigned)                                                      \
  FUNCTION(cuEventDestroy_v2, Event)                                                             \
  FUNCTION(cuEventRecord, Event, Stream)                                                         \
  FUNCTION(cuEventQuery, Event)                                                                  \
  FUNCTION(cuEventSynchronize, Event)

// One function, and its name for errors.
template <typename... Parameters>
struct Entry {
  const char* name;
  Result (*at)(Parameters...) = nullptr;
};

struct Driver {
#define OTR_CUDA_ENTRY(symbol, ...) Entry<__VA_ARGS__> symbol{#symbol};
  OTR_CUDA_FUNCTIONS(OTR_CUDA_ENTRY)
#undef OTR_CUDA_ENTRY
  std::string path;  // of the library
  int version = 0;   // 1000 × major + 10 × minor
};

// The driver's library that OTR_CUDA_DRIVER names, else libcuda.so.1; loaded and initialised once.
// Throws one Failure with every path tried; the next call tries again.
[[nodiscard]] const Driver& driver();

// "cuInit: CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is detected"
[[nodiscard]] std::string text_of(const Driver& driver, const char* call, Result result);
[[nodiscard]] int32_t status_of(Result result);
// What a context does not come back from.
[[nodiscard]] bool is_final(Result result);

}  // namespace outrigger::cuda
