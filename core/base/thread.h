// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace outrigger {

// A thread for `body`. Throws OTR_E_OUT_OF_MEMORY where the system has none to give.
template <typename Body>
[[nodiscard]] std::thread start_thread(const char* what, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    fail(OTR_E_OUT_OF_MEMORY,
         "no thread is to be had for {} ({}): raise the limits on processes and address space, or "
         "ask for fewer workers",
         what, error.what());
  }
}

}  // namespace outrigger
