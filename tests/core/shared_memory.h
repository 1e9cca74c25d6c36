// SPDX-License-Identifier: Apache-2.0
// Shared memory that has a name in /dev/shm. The library makes none but flight recorders; other
// programs of the machine come and go there, Open MPI's too, whose names have a host's in them.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

namespace outrigger::test {

inline bool is_known_there(const std::string& path) {
  const std::string flights = "/outrigger-" + std::to_string(geteuid());
  return path.find(flights) != path.npos || path.find("/sm_segment.") != path.npos;
}

// Names there that are this project's, and what this process has of it, mapped or open.
inline std::set<std::string> named_shared_memory() {
  const std::string folder = "/dev/shm/";
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_known_there(folder + name)) continue;
    if (name.find("outrigger") != name.npos || name.find("otr") != name.npos) names.insert(name);
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find(folder);
    if (at != line.npos && !is_known_there(line.substr(at))) names.insert(line.substr(at));
  }
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.rfind(folder, 0) == 0 && !is_known_there(target)) names.insert(target);
  }
  return names;
}

}  // namespace outrigger::test
