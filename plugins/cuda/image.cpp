// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/image.h"

// OTR_CUDA_IMAGE: the file that nvcc has made of kernels/cuda/kernels.cu.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden otr_cuda_image\n"
    ".global otr_cuda_image\n"
    "otr_cuda_image:\n"
    ".incbin \"" OTR_CUDA_IMAGE
    "\"\n"
    ".popsection\n");
extern "C" const char otr_cuda_image[];

namespace outrigger::cuda {

Image image() {
  return {otr_cuda_image, "; the kernels in liboutrigger_cuda.so are nvcc " OTR_CUDA_NVCC
                          "'s: a driver of an older CUDA may not know them"};
}

}  // namespace outrigger::cuda
