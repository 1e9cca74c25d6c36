// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace outrigger::comm {

struct Settings {
  double timeout = 300;  // seconds
  int32_t spin = -1;     // microseconds before sleeping; −1: chosen from cores and ranks
};

}  // namespace outrigger::comm
