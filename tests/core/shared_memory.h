// SPDX-License-Identifier: Apache-2.0
// Shared memory that has a name in /dev/shm. The library makes none; other programs of the machine
// come and go there.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

namespace outrigger::test {

// Names there that are this project's, and what this process has of it, mapped or open.
inline std::set<std::string> named_shared_memory() {
  const std::string folder = "/dev/shm/";
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find("outrigger") != name.npos || name.find("otr") != name.npos) names.insert(name);
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find(folder);
    if (at != line.npos) names.insert(line.substr(at));
  }
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.rfind(folder, 0) == 0) names.insert(target);
  }
  return names;
}

}  // namespace outrigger::test
