// SPDX-License-Identifier: Apache-2.0
#include "core/comm/parts.h"

#include <xxhash.h>

#include "core/comm/operation.h"

namespace outrigger::comm {

PartsSummary summarize(std::span<const Part> parts, int32_t world, std::string_view label) {
  PartsSummary summary;
  summary.by_rank.resize(static_cast<size_t>(world));
  std::vector<uint64_t> sizes;
  sizes.reserve(2 * parts.size());
  for (const Part& part : parts) {
    require_root(label, part.rank, world);
    summary.bytes += part.bytes.size();
    summary.by_rank[static_cast<size_t>(part.rank)] += part.bytes.size();
    sizes.push_back(static_cast<uint64_t>(part.rank));
    sizes.push_back(part.bytes.size());
  }
  summary.hash = XXH3_64bits(sizes.data(), sizes.size() * sizeof(uint64_t));
  return summary;
}

}  // namespace outrigger::comm
