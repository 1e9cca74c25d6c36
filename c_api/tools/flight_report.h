// SPDX-License-Identifier: Apache-2.0
// `outrigger inspect` of flight recorders' files.
#pragma once

#include <cstdint>
#include <string>

namespace outrigger::tools {

struct FlightRequest {
  std::string where;    // a folder, or a file
  int64_t process = 0;  // the job that it was of; 0: the last
  int64_t last = 0;     // operations of each rank to list
  bool json = false;
};

// Returns the exit code: 1 if a file is damaged. Throws Fault.
[[nodiscard]] int report_flights(const FlightRequest& request);

}  // namespace outrigger::tools
