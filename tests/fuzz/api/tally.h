// SPDX-License-Identifier: Apache-2.0
// How often the calls that matter most succeed: programs whose calls all fail find nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/fuzz/api/device.h"

namespace otr_fuzz {

struct Tally {
  std::atomic<int64_t> all{0}, on_device{0};
  void add(const Device* device) {
    ++all;
    if (device != nullptr) ++on_device;
  }
};
inline Tally steps_done, passes_ended;

}  // namespace otr_fuzz
