// SPDX-License-Identifier: Apache-2.0
#include "core/memory/page_facts.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/base/text.h"
#include "core/topology/binding.h"

namespace outrigger::memory {
namespace {

struct Range {
  uintptr_t begin, end;
};

// In order, none over another.
std::vector<Range> merged(std::vector<device::Neighbour> ranges) {
  std::ranges::sort(ranges, {}, &device::Neighbour::data);
  std::vector<Range> all;
  for (const device::Neighbour& range : ranges) {
    const auto begin = reinterpret_cast<uintptr_t>(range.data);
    if (!all.empty() && begin <= all.back().end) {
      all.back().end = std::max(all.back().end, begin + range.bytes);
    } else {
      all.push_back({begin, begin + range.bytes});
    }
  }
  return all;
}

// "7f12a000-7f12c000 rw-p …"
std::optional<Range> mapping_in(std::string_view line) {
  Range range{};
  const char* const last = line.data() + line.size();
  const auto begin = std::from_chars(line.data(), last, range.begin, 16);
  if (begin.ec != std::errc() || begin.ptr == last || *begin.ptr != '-') return {};
  const auto end = std::from_chars(begin.ptr + 1, last, range.end, 16);
  if (end.ec != std::errc() || end.ptr == last || *end.ptr != ' ') return {};
  return range;
}

// "Rss:    12 kB"
int64_t bytes_in(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return 0;
  line.remove_prefix(name.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  int64_t kib = 0;
  std::from_chars(line.data(), line.data() + line.size(), kib);
  return kib * 1024;
}

std::vector<int32_t> nodes_of(const std::vector<Range>& ranges) {
  constexpr size_t kSamples = 64;  // of each
  std::vector<const std::byte*> addresses;
  for (const Range& range : ranges) {
    for (size_t i = 0; i < kSamples; ++i) {
      const uintptr_t at = range.begin + (range.end - range.begin) / kSamples * i;
      addresses.push_back(reinterpret_cast<const std::byte*>(at));
    }
  }
  return topology::nodes_of_pages(addresses);
}

}  // namespace

PageFacts page_facts(std::vector<device::Neighbour> ranges, const std::string& smaps) {
  PageFacts facts;
  const std::vector<Range> own = merged(std::move(ranges));
  for (const Range& range : own) facts.bytes += static_cast<int64_t>(range.end - range.begin);
  std::ifstream table(smaps);
  if (!table) {
    facts.reason = format_text("{}: {}", smaps, std::strerror(errno));
    return facts;
  }
  double share = 0;
  for (std::string line; std::getline(table, line);) {
    if (const auto mapping = mapping_in(line)) {
      uintptr_t ours = 0;
      auto at = std::ranges::upper_bound(own, mapping->begin, {}, &Range::end);
      for (; at != own.end() && at->begin < mapping->end; ++at) {
        ours += std::min(at->end, mapping->end) - std::max(at->begin, mapping->begin);
      }
      share = static_cast<double>(ours) / static_cast<double>(mapping->end - mapping->begin);
      continue;
    }
    if (share == 0) continue;
    const auto part = [&](std::string_view name) {
      return static_cast<int64_t>(share * static_cast<double>(bytes_in(line, name)));
    };
    facts.resident += part("Rss:");
    facts.locked += part("Locked:");
    facts.huge += part("AnonHugePages:") + part("ShmemPmdMapped:") + part("FilePmdMapped:") +
                  part("Private_Hugetlb:") + part("Shared_Hugetlb:");
  }
  facts.nodes = nodes_of(own);
  return facts;
}

}  // namespace outrigger::memory
