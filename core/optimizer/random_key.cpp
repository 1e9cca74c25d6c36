// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/random_key.h"

#include <xxhash.h>

#include <string>

namespace outrigger::optimizer {

kernels::RandomStream random_stream(uint64_t seed, std::string_view name) {
  const auto key = [&](char state) {
    std::string bytes;
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(seed >> shift));
    bytes.append(name).push_back('\0');
    bytes.push_back(state);
    return XXH3_64bits(bytes.data(), bytes.size());
  };
  kernels::RandomStream stream;
  stream.weight_key = key('w');
  stream.exp_avg_key = key('m');
  stream.exp_avg_sq_key = key('v');
  return stream;
}

}  // namespace outrigger::optimizer
