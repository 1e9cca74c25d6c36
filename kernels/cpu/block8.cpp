// SPDX-License-Identifier: Apache-2.0
// Reading and writing 8-bit blocks by themselves; an update does it inside (adam.cpp).
#include "kernels/reference/block8.h"

#include <cstring>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/block8-inl.h"

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(UnpackFunction, unpack_for, unpack_blocks)
OTR_EXPORT(PackFunction, pack_for, pack_blocks)
}  // namespace outrigger::kernels::cpu
#endif
