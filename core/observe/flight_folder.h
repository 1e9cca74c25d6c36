// SPDX-License-Identifier: Apache-2.0
// Where flight recorders write: for who writes, and for who looks for what was written.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace outrigger::observe {

struct FlightPlace {
  std::string folder;  // empty: none are written
  bool is_stated = false;
};

// OTR_FLIGHT_RECORDER, a folder or "off"; else a folder of this user's in the machine's shared
// memory, or where there is none for temporary files.
[[nodiscard]] inline FlightPlace flight_place() {
  const char* const given = std::getenv("OTR_FLIGHT_RECORDER");
  const std::string stated = given == nullptr ? "" : given;
  if (stated == "off") return {};
  if (!stated.empty()) return {stated, true};
  std::filesystem::path base = "/dev/shm";
  if (access(base.c_str(), W_OK | X_OK) != 0) {
    std::error_code none;
    base = std::filesystem::temp_directory_path(none);
    if (none) base = "/tmp";
  }
  return {(base / ("outrigger-" + std::to_string(geteuid()))).string(), false};
}

}  // namespace outrigger::observe
