// SPDX-License-Identifier: Apache-2.0
#include "core/comm/free_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>

namespace outrigger::comm {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The number after `key` in a file of "key number" lines; kUnknown if there is none.
uint64_t read_value(const std::string& file, std::string_view key) {
  std::ifstream in(file);
  std::string word;
  uint64_t value = 0;
  for (int lines = 0; lines < 1000 && in >> word; lines++) {
    if (word == key && in >> value) return value;
    in.clear();
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

// The single number in a file; kUnknown if it is absent or "max".
uint64_t read_number(const std::string& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  return in >> value ? value : kUnknown;
}

// One control group's limit less its use, with the page cache that the kernel could drop added
// back.
void consider_group(const std::string& folder, const char* limit_name, const char* use_name,
                    FreeMemory& least) {
  const uint64_t limit = read_number(folder + "/" + limit_name);
  const uint64_t use = read_number(folder + "/" + use_name);
  if (limit == kUnknown || use == kUnknown) return;
  const uint64_t cache = read_value(folder + "/memory.stat", "inactive_file");
  const uint64_t droppable = cache == kUnknown ? 0 : std::min(cache, use);
  const uint64_t held = use - droppable;
  const uint64_t left = limit > held ? limit - held : 0;
  if (left < least.bytes) least = {left, fmt::format("the limit in {}/{}", folder, limit_name)};
}

}  // namespace

FreeMemory free_memory() {
  const uint64_t kib = read_value("/proc/meminfo", "MemAvailable:");
  FreeMemory least{kib == kUnknown ? kUnknown : kib << 10, "MemAvailable of /proc/meminfo"};

  // Lines are "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers. A limit
  // may sit on the group itself or on any group above it.
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  for (int lines = 0; lines < 100 && std::getline(groups, line); lines++) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers != "memory") continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    for (int depth = 0; depth < 64; depth++) {
      if (unified) {
        consider_group(root + path, "memory.max", "memory.current", least);
      } else {
        consider_group(root + path, "memory.limit_in_bytes", "memory.usage_in_bytes", least);
      }
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return least;
}

std::string memory_text(uint64_t bytes) {
  if (bytes < 10 << 20) return fmt::format("{} bytes", bytes);
  if (bytes < uint64_t{10} << 30)
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 0x1p30);
}

}  // namespace outrigger::comm
