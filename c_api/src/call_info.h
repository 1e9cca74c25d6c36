// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "c_api/src/guard.h"
#include "core/engine/pass.h"
#include "outrigger.h"

namespace outrigger::c_api {

// Reads a call's info and refuses what this version cannot honour; `flags` are the ones the call
// knows; on_host: the engine's tensors are the CPU's.
inline otr_call_info read_call_info(const otr_call_info* info, uint32_t flags, bool on_host) {
  if (info == nullptr) return {};
  otr_call_info defaults{};
  defaults.struct_size = sizeof defaults;
  const otr_call_info read = read_struct(info, defaults, "info");
  if ((read.flags & ~flags) != 0) {
    fail(OTR_E_ARGUMENT, "info.flags = {:#x}; this call knows {:#x}", read.flags, flags);
  }
  if (read.stream != 0 && on_host) {
    fail(OTR_E_UNSUPPORTED, "info.stream = {}; CPU tensors have no stream: it must be 0",
         read.stream);
  }
  const bool tagged = read.loss_scale != 0;
  const bool is_scale = read.loss_scale > 0 && std::isfinite(read.loss_scale);
  if (tagged && !is_scale) {
    fail(OTR_E_ARGUMENT, "info.loss_scale = {}; legal is a finite number above 0, or 0 for no tag",
         read.loss_scale);
  }
  if (read.accumulation < 0 || read.ranks < 0 ||
      (!tagged && (read.accumulation > 0 || read.ranks > 0))) {
    fail(
        OTR_E_ARGUMENT,
        "info has loss_scale {}, accumulation {}, ranks {}; the last two are 0 or more, and belong "
        "to a tag, whose loss_scale is 1 if there is none",
        read.loss_scale, read.accumulation, read.ranks);
  }
  return read;
}

inline engine::Tag tag_of(const otr_call_info& info) {
  return {info.loss_scale, info.accumulation, info.ranks};
}

}  // namespace outrigger::c_api
