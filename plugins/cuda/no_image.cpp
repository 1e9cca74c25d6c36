// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/image.h"

namespace outrigger::cuda {

Image image() {
  return {"no kernels",
          "; this liboutrigger_cuda.so was built without nvcc and has no kernels: "
          "build it where CMake finds nvcc (-DOTR_NVCC=/path/to/nvcc)"};
}

}  // namespace outrigger::cuda
