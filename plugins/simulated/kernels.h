// SPDX-License-Identifier: Apache-2.0
// The plugin's kernels on a simulated device: those of a GPU, with their lanes in a loop, on the
// second mapping of its memory.
#pragma once

#include "plugins/simulated/device.h"

namespace outrigger::simulated {

// A list is one launch.
void convert(Device& device, const otr_plugin_convert* list, int64_t count, uint64_t stream);
void fold(Device& device, const otr_plugin_fold& given, uint64_t stream);
void decide(Device& device, const otr_plugin_decide& given, uint64_t stream);
void update(Device& device, const otr_plugin_update* list, int64_t count,
            otr_plugin_update_count* host_total, uint64_t stream);
void product(Device& device, const otr_plugin_product& given, uint64_t stream);

}  // namespace outrigger::simulated
