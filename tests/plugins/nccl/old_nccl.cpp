// SPDX-License-Identifier: Apache-2.0
// A libnccl that lacks what came with 2.14, and says that it is 2.7.
#include "plugins/nccl/library.h"

#define ncclCommInitRankConfig not_there_1
#define OTR_NCCL_STUB(symbol, ...) \
  extern "C" __attribute__((visibility("default"))) int symbol(__VA_ARGS__) { return 0; }
namespace outrigger::nccl {
OTR_NCCL_FUNCTIONS(OTR_NCCL_STUB)
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(Result) {
  return "";
}
}  // namespace outrigger::nccl
