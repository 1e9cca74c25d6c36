// SPDX-License-Identifier: Apache-2.0
// Who runs the CUDA kernels in cuda_test.cpp: lanes in a loop (cuda_on_lanes.cpp), or a device
// through its plugin (tests/plugins/cuda/kernels_on_device.cpp). Memory is the host's here.
#pragma once

#include "kernels/cuda/convert.h"
#include "kernels/fold_origin.h"
#include "kernels/kernels.h"

namespace outrigger::kernels::test::runner {

[[nodiscard]] UpdateCount update(const Update& u);
// Adds to both.
void lamb_norms(const Update& u, NormSum& weights, NormSum& directions);
void muon_direction(const Update& u, float* direction);
// Adds to *fold.norm.
Origin fold(const Fold& fold);
void convert(const cuda::Conversion& c);
void product(const Product& p);

}  // namespace outrigger::kernels::test::runner
