// SPDX-License-Identifier: Apache-2.0
// A CUDA driver that lacks two functions, as one of before CUDA 11.2 does.
#include "plugins/cuda/driver.h"

#define cuMemPoolTrimTo not_there_1
#define cuMemAllocFromPoolAsync not_there_2
#define OTR_CUDA_STUB(symbol, ...) \
  extern "C" __attribute__((visibility("default"))) int symbol(__VA_ARGS__) { return 0; }
namespace outrigger::cuda {
OTR_CUDA_FUNCTIONS(OTR_CUDA_STUB)
}
