// SPDX-License-Identifier: Apache-2.0
// The library's work in the structs of a plugin's table, and what comes back.
#pragma once

#include "core/device/device.h"
#include "outrigger_plugin.h"

namespace outrigger::device {

[[nodiscard]] int32_t code_of(Format format);  // OTR_PLUGIN_FLOAT32 …
[[nodiscard]] otr_plugin_convert described(void* to, Format to_format, const void* from,
                                           Format from_format, float factor, int64_t count);
[[nodiscard]] otr_plugin_update described(const kernels::Update& update);
// Without where its norm goes.
[[nodiscard]] otr_plugin_fold described(const SliceFold& slice);
[[nodiscard]] kernels::NormSum sum_of(const otr_plugin_norm& norm);

}  // namespace outrigger::device
