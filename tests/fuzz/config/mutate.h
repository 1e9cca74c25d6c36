// SPDX-License-Identifier: Apache-2.0
// Changes that keep a text near the grammar. All words come from the key table.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace otr_fuzz {

using Random = std::minstd_rand;

size_t below(Random& random, size_t end);

// Pieces of JSON, every key's name, and every value that the table names.
[[nodiscard]] const std::vector<std::string>& words();

// Sets or removes one key of the table, if the text is JSON; else, or by chance, inserts, removes
// or repeats some bytes.
[[nodiscard]] std::string mutate(std::string_view text, Random& random);

}  // namespace otr_fuzz
