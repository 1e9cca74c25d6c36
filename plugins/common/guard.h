// SPDX-License-Identifier: Apache-2.0
// What stands around every function of a plugin's table: nothing is thrown to the caller.
#pragma once

#include <exception>
#include <new>

#include "plugins/common/work.h"

namespace outrigger::plugins {

// This thread's text for the table's last_error.
[[nodiscard]] const char* last_error() noexcept;
void set_error(const char* text) noexcept;

template <typename Body>
int32_t guard(const Body& body) noexcept {
  set_error("");
  try {
    body();
    return OTR_OK;
  } catch (const Failure& failure) {
    set_error(failure.text.c_str());
    return failure.status;
  } catch (const std::bad_alloc&) {
    return OTR_E_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    set_error(error.what());
    return OTR_E_SYSTEM;
  }
}

}  // namespace outrigger::plugins
