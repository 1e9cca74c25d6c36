// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that the plugin uses, in declarations of our own, so that it builds without
// NCCL's header and starts without its library. Where that header is, a test compares the two
// (tests/plugins/nccl/header_test.cpp).
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "plugins/cuda/driver.h"

namespace outrigger::nccl {

using Result = int;
using DataType = int;
using RedOp = int;
using Communicator = struct ncclComm*;
using Stream = cuda::Stream;
template <typename... Parameters>
using Entry = cuda::Entry<Parameters...>;

struct UniqueId {
  char internal[128];
};
// Of release 2.18: later ones have more members, and take one that says it is shorter.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

inline constexpr Result kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInternalError = 3,
                        kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;
inline constexpr DataType kUint8 = 1, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9;
inline constexpr RedOp kSum = 0;
inline constexpr int kLeastVersion = 21800;

// FUNCTION(symbol, parameters…): every function returns a Result. Release 2.18 has these …
#define OTR_NCCL_FUNCTIONS(FUNCTION)                                                  \
  FUNCTION(ncclGetVersion, int*)                                                      \
  FUNCTION(ncclGetUniqueId, UniqueId*)                                                \
  FUNCTION(ncclCommInitRankConfig, Communicator*, int, UniqueId, int, Config*)        \
  FUNCTION(ncclCommAbort, Communicator)                                               \
  FUNCTION(ncclCommGetAsyncError, Communicator, Result*)                              \
  FUNCTION(ncclGroupStart)                                                            \
  FUNCTION(ncclGroupEnd)                                                              \
  FUNCTION(ncclSend, const void*, size_t, DataType, int, Communicator, Stream)        \
  FUNCTION(ncclRecv, void*, size_t, DataType, int, Communicator, Stream)              \
  FUNCTION(ncclAllGather, const void*, void*, size_t, DataType, Communicator, Stream) \
  FUNCTION(ncclReduceScatter, const void*, void*, size_t, DataType, RedOp, Communicator, Stream)
// … and 2.19 these, too.
#define OTR_NCCL_NEWER_FUNCTIONS(FUNCTION)                        \
  FUNCTION(ncclCommRegister, Communicator, void*, size_t, void**) \
  FUNCTION(ncclCommDeregister, Communicator, void*)

struct Library {
#define OTR_NCCL_ENTRY(symbol, ...) Entry<__VA_ARGS__> symbol{#symbol};
  OTR_NCCL_FUNCTIONS(OTR_NCCL_ENTRY)
  OTR_NCCL_NEWER_FUNCTIONS(OTR_NCCL_ENTRY)  // null where the library has none
#undef OTR_NCCL_ENTRY
  const char* (*error_string)(Result) = nullptr;      // ncclGetErrorString
  const char* (*last_error)(Communicator) = nullptr;  // ncclGetLastError
  std::string path;
  int version = 0;  // 10000 × major + 100 × minor + patch
};

// The library that OTR_NCCL_LIBRARY names, else libnccl.so.2; loaded once. Throws one Failure with
// every path tried; the next call tries again.
[[nodiscard]] const Library& library();

// "ncclSend: invalid usage (5), …", with what the library says of the communicator's last failure.
[[nodiscard]] std::string text_of(const Library& library, const char* call, Result result,
                                  Communicator communicator);
[[nodiscard]] int32_t status_of(Result result);

}  // namespace outrigger::nccl
