// SPDX-License-Identifier: Apache-2.0
// Changes that keep a checkpoint near the format.
#pragma once

#include "tests/fuzz/checkpoint/bundle.h"
#include "tests/fuzz/safetensors/mutate.h"

namespace otr_fuzz_checkpoint {

using otr_fuzz_safetensors::below;
using otr_fuzz_safetensors::Random;

// Of bytes, of headers, of whole files; or of what manifest and index say, sealed as a writer would
// seal it.
[[nodiscard]] Bundle mutate(Bundle bundle, Random& random);

}  // namespace otr_fuzz_checkpoint
