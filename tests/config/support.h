// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/config/config.h"

namespace outrigger::config {

struct Fault {
  int32_t status = OTR_OK;
  std::string text;
};

// What a call throws; status OTR_OK if nothing.
inline Fault fault_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {};
}

inline Fault engine_fault(std::string_view json, int32_t world = 1) {
  return fault_of([&] { (void)parse_engine(json, world); });
}

inline Fault optimizer_fault(std::string_view json) {
  return fault_of([&] { (void)parse_optimizer(json); });
}

inline void expect_fault(const Fault& fault, int32_t status, std::string_view text) {
  EXPECT_EQ(fault.status, status);
  EXPECT_EQ(fault.text, text);
}

inline void expect_fault_with(const Fault& fault, int32_t status,
                              std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(fault.status, status) << fault.text;
  for (const std::string_view part : parts) {
    EXPECT_NE(fault.text.find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << fault.text;
  }
}

}  // namespace outrigger::config
