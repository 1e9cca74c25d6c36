/* SPDX-License-Identifier: Apache-2.0
 * The number the model computes in: float. The gradient check compiles the same sources with
 * double.
 */
#ifndef GPT_REAL_H
#define GPT_REAL_H

#include <cblas.h>
#include <math.h>

#ifdef GPT_FLOAT64
typedef double real;
#define real_gemm cblas_dgemm
#define real_exp exp
#define real_sqrt sqrt
#else
typedef float real;
#define real_gemm cblas_sgemm
#define real_exp expf
#define real_sqrt sqrtf
#endif

#endif
