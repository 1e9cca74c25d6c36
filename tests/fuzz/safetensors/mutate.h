// SPDX-License-Identifier: Apache-2.0
// Changes that keep a file near the format.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace otr_fuzz_safetensors {

using Random = std::minstd_rand;

size_t below(Random& random, size_t end);

// Files that are read, of all that the format has.
[[nodiscard]] const std::vector<std::string>& seeds();

// Inserts, removes, repeats or changes something in the header, whose length then fits mostly.
[[nodiscard]] std::string mutate(std::string_view file, Random& random);

}  // namespace otr_fuzz_safetensors
