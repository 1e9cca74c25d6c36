// SPDX-License-Identifier: Apache-2.0
#include "core/topology/memory.h"

#include <algorithm>
#include <limits>

#include "core/base/text.h"

namespace outrigger::topology {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
// Version 1 writes "no limit" as the largest multiple of a page.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::string limit_file(const Group& group) {
  return group.folder + (group.unified ? "/memory.max" : "/memory.limit_in_bytes");
}

// One control group's limit less its use, with the page cache that the kernel could drop added
// back.
void consider_group(const Group& group, FreeMemory& free) {
  const auto limit = number_in(limit_file(group)).value;
  const auto use =
      number_in(group.folder + (group.unified ? "/memory.current" : "/memory.usage_in_bytes"))
          .value;
  if (!limit || !use) return;
  const uint64_t cache =
      number_after(group.folder + "/memory.stat", "inactive_file").value.value_or(0);
  const uint64_t held = *use - std::min(cache, *use);
  const uint64_t left = *limit > held ? *limit - held : 0;
  if (*limit < kNoLimit)
    free.terms.push_back({left, format_text("the limit in {}", limit_file(group))});
}

}  // namespace

FreeMemory free_memory(const std::string& root) {
  const auto available = kib_after(root + "/proc/meminfo", "MemAvailable:").value;
  FreeMemory free{{{available.value_or(kUnknown), "MemAvailable of /proc/meminfo"}}};
  for (const Group& group : groups_of("memory", root)) consider_group(group, free);
  std::ranges::stable_sort(free.terms, {}, &FreeMemory::Term::bytes);
  return free;
}

std::string FreeMemory::text() const {
  std::string all;
  for (const Term& term : terms) {
    if (term.bytes == kUnknown) continue;
    all += format_text("{}{} by {}", all.empty() ? "" : ", ", memory_text(term.bytes), term.source);
  }
  return all;
}

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit lowest{{{}, "no limit is set"}, {}};
  const std::vector<Group> groups = groups_of("memory", root);
  if (groups.empty()) {
    lowest.bytes.reason = format_text("{}/proc/self/cgroup names no control group of memory", root);
  }
  for (const Group& group : groups) {
    const auto limit = number_in(limit_file(group)).value;
    if (!limit || *limit >= kNoLimit || *limit >= lowest.bytes.value.value_or(kUnknown)) continue;
    lowest = {{limit, {}}, limit_file(group)};
  }
  return lowest;
}

std::string memory_text(uint64_t bytes) {
  if (bytes < 10 << 20) return format_text("{} bytes", bytes);
  if (bytes < uint64_t{10} << 30)
    return format_text("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
  return format_text("{:.1f} GiB", static_cast<double>(bytes) / 0x1p30);
}

}  // namespace outrigger::topology
