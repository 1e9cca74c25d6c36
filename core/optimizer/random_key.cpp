// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/random_key.h"

#include <xxhash.h>

#include <string>

namespace outrigger::optimizer {

kernels::RandomStream random_stream(uint64_t seed, std::string_view name) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(seed >> shift));
  bytes.append(name);
  kernels::RandomStream stream;
  stream.key = XXH3_64bits(bytes.data(), bytes.size());
  return stream;
}

}  // namespace outrigger::optimizer
