// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/on_lanes.h"
#include "tests/kernels/cuda_runner.h"

namespace outrigger::kernels::test::runner {

namespace on_lanes = cuda::on_lanes;

UpdateCount update(const Update& u) { return on_lanes::update(u); }
void lamb_norms(const Update& u, NormSum& weights, NormSum& directions) {
  on_lanes::lamb_norms(u, weights, directions);
}
void muon_direction(const Update& u, float* direction) { on_lanes::muon_direction(u, direction); }
Origin fold(const Fold& fold) { return on_lanes::fold(fold); }
void convert(const cuda::Conversion& c) { on_lanes::convert(c); }
void product(const Product& p) { on_lanes::product(p); }

}  // namespace outrigger::kernels::test::runner
