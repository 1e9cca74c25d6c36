// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "c_api/src/guard.h"
#include "outrigger.h"

namespace outrigger::c_api {

// Reads a call's info and refuses what this version cannot honour; `flags` are the ones the call
// knows.
inline otr_call_info read_call_info(const otr_call_info* info, uint32_t flags) {
  otr_call_info defaults{};
  defaults.struct_size = sizeof defaults;
  const otr_call_info read = read_struct(info, defaults, "info");
  if ((read.flags & ~flags) != 0) {
    fail(OTR_E_ARGUMENT, "info.flags = {:#x}; this call knows {:#x}", read.flags, flags);
  }
  if (read.stream != 0) {
    fail(OTR_E_UNSUPPORTED, "info.stream = {}; CPU tensors have no stream: it must be 0",
         read.stream);
  }
  if (read.scale != 0 && read.scale != 1) {
    fail(OTR_E_UNSUPPORTED, "info.scale = {}; scale tags are not built yet: it must be 0 or 1",
         read.scale);
  }
  return read;
}

}  // namespace outrigger::c_api
