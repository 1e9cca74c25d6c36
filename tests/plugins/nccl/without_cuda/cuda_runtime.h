/* SPDX-License-Identifier: Apache-2.0
 * What NCCL's header needs of CUDA's, so that it can be read where those are not. */
#pragma once

typedef struct CUstream_st* cudaStream_t;
