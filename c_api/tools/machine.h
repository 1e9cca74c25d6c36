// SPDX-License-Identifier: Apache-2.0
// What otr_machine_info tells, here or in a file of `outrigger doctor --json`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace outrigger::tools {

using Json = nlohmann::ordered_json;

// Throws Fault.
[[nodiscard]] Json machine_here();

// The "machine" of doctor's document, or the text of otr_machine_info itself. Throws Fault.
[[nodiscard]] Json machine_in(const std::string& file);

// The value at a path such as "/memory/usable_bytes"; nothing if it is null, missing or no number
// from 0.
[[nodiscard]] std::optional<uint64_t> number_at(const Json& machine, const std::string& path);
// Why it is null.
[[nodiscard]] std::string reason_at(const Json& machine, const std::string& path);

// "23.4 GiB"
[[nodiscard]] std::string bytes_text(uint64_t bytes);

// In words: a line for each part.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> machine_lines(const Json& machine);

}  // namespace outrigger::tools
