// SPDX-License-Identifier: Apache-2.0
// Our declarations beside those of CUDA's header; built where that is.
#include <cuda.h>
#include <gtest/gtest.h>

#include <tuple>
#include <type_traits>

#include "plugins/cuda/driver.h"

namespace {

namespace ours = outrigger::cuda;

template <typename A, typename B>
constexpr bool is_passed_alike() {
  return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
         std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
template <typename... A, typename R, typename... B>
constexpr bool is_called_alike(const ours::Entry<A...>&, R (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return sizeof(R) == sizeof(ours::Result) && (... && is_passed_alike<A, B>());
  }
}

TEST(CudaHeader, EveryFunctionIsCalledAlike) {
  const ours::Driver driver;
#define OTR_CUDA_COMPARE(symbol, ...) \
  EXPECT_TRUE(is_called_alike(driver.symbol, decltype(&::symbol){})) << #symbol;
  OTR_CUDA_FUNCTIONS(OTR_CUDA_COMPARE)
#undef OTR_CUDA_COMPARE
}

TEST(CudaHeader, NumbersAreTheSame) {
  EXPECT_EQ(ours::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ours::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ours::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(ours::kDeinitialized, CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(ours::kNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(ours::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(ours::kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(ours::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ours::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(ours::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(ours::kInvalidPtx, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(ours::kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
  EXPECT_EQ(ours::kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(ours::kContained, CUDA_ERROR_CONTAINED);
  EXPECT_EQ(ours::kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ours::kNotFound, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(ours::kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ours::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ours::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(ours::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(ours::kAssert, CUDA_ERROR_ASSERT);
  EXPECT_EQ(ours::kAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(ours::kNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(ours::kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(ours::kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(ours::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(ours::kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
  EXPECT_EQ(ours::kInvalidPc, CUDA_ERROR_INVALID_PC);
  EXPECT_EQ(ours::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(ours::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(ours::kUnknown, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(ours::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(ours::kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(ours::kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(ours::kMemoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  EXPECT_EQ(ours::kReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
  EXPECT_EQ(ours::kReservedBytes, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  EXPECT_EQ(ours::kUsedBytes, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  EXPECT_EQ(ours::kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(ours::kHostMemory, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(ours::kPinnedAllocation, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(ours::kDeviceLocation, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(ours::kNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(ours::kBlockingSync, CU_EVENT_BLOCKING_SYNC);
  EXPECT_EQ(ours::kDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(ours::kPortable, CU_MEMHOSTREGISTER_PORTABLE);
  EXPECT_EQ(ours::kPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(ours::kLegacyStream, reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(ours::kPerThreadStream, reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD));
}

TEST(CudaHeader, PoolsAreDescribedAlike) {
  EXPECT_EQ(sizeof(ours::PoolProperties), sizeof(CUmemPoolProps));
  EXPECT_EQ(offsetof(ours::PoolProperties, handle_types), offsetof(CUmemPoolProps, handleTypes));
  EXPECT_EQ(offsetof(ours::PoolProperties, location), offsetof(CUmemPoolProps, location));
  EXPECT_EQ(offsetof(ours::PoolProperties, security),
            offsetof(CUmemPoolProps, win32SecurityAttributes));
  EXPECT_EQ(offsetof(ours::PoolProperties, most_bytes), offsetof(CUmemPoolProps, maxSize));
  EXPECT_EQ(offsetof(ours::PoolProperties, usage), offsetof(CUmemPoolProps, usage));
  EXPECT_EQ(offsetof(ours::PoolProperties, reserved), offsetof(CUmemPoolProps, reserved));
}

}  // namespace
