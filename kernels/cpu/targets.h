// SPDX-License-Identifier: Apache-2.0
// Which instruction sets the vector kernels are compiled for. Include before any Highway header.
//
// Each has a fused multiply-add, exact division and square root. Left out: SSE (no FMA), AVX3_DL
// (no kernel uses an instruction that AVX3 lacks) and SVE (its vectors have no fixed length to
// unroll by). A machine with none of these runs the oracle.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <hwy/targets.h>

#include "kernels/kernel_table.h"

#if HWY_ARCH_ARM_A64
#define OTR_VECTOR_TARGETS HWY_NEON
#else
#define OTR_VECTOR_TARGETS (HWY_AVX2 | HWY_AVX3)
#endif

// In a function's switch over targets: returns the function's version for that target.
#define OTR_CASE(target, name_space, function) \
  case target:                                 \
    return name_space::function;
#if HWY_TARGETS & OTR_VECTOR_TARGETS & HWY_AVX3
#define OTR_CASE_AVX3(function) OTR_CASE(HWY_AVX3, N_AVX3, function)
#else
#define OTR_CASE_AVX3(function)
#endif
#if HWY_TARGETS & OTR_VECTOR_TARGETS & HWY_AVX2
#define OTR_CASE_AVX2(function) OTR_CASE(HWY_AVX2, N_AVX2, function)
#else
#define OTR_CASE_AVX2(function)
#endif
#if HWY_TARGETS & OTR_VECTOR_TARGETS & HWY_NEON
#define OTR_CASE_NEON(function) OTR_CASE(HWY_NEON, N_NEON, function)
#else
#define OTR_CASE_NEON(function)
#endif

// Defines `Type getter(int64_t target)`: the version of `function` for one Highway target, or null.
#define OTR_EXPORT(Type, getter, function) \
  Type getter(int64_t target) {            \
    switch (target) {                      \
      OTR_CASE_AVX3(function)              \
      OTR_CASE_AVX2(function)              \
      OTR_CASE_NEON(function)              \
      default:                             \
        return nullptr;                    \
    }                                      \
  }

namespace outrigger::kernels::cpu {

ConvertFunction convert_for(int64_t target);
ScaleFunction scale_for(int64_t target);
AddFunction add_for(int64_t target);
UnpackFunction unpack_for(int64_t target);
PackFunction pack_for(int64_t target);
ToIntegersFunction to_integers_for(int64_t target);
FromIntegersFunction from_integers_for(int64_t target);
SumOfSquaresFunction sum_of_squares_for(int64_t target);
FoldFunction fold_for(int64_t target);
UpdateFunction update_for(int64_t target);
LambNormsFunction lamb_norms_for(int64_t target);
MuonDirectionFunction muon_direction_for(int64_t target);
ProductFunction product_for(int64_t target);

}  // namespace outrigger::kernels::cpu
