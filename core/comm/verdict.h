// SPDX-License-Identifier: Apache-2.0
// What one rank tells the others of its own part of an operation, so that all of them fail or none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/base/error.h"

namespace outrigger::comm {

// Trivially copyable: it crosses processes.
struct Verdict {
  int32_t status = OTR_OK;
  char text[508] = {};

  void set(int32_t code, std::string_view what) {
    status = code;
    std::copy_n(what.data(), std::min(what.size(), sizeof text - 1), text);
  }
  // Throws what the rank says, after `what` it was about.
  void require(std::string_view what, int32_t rank) const {
    if (status == OTR_OK) return;
    fail(status, "{} on rank {}: {}", what, rank,
         std::string_view(text, strnlen(text, sizeof text)));
  }
};

}  // namespace outrigger::comm
