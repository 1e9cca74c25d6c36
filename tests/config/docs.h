// SPDX-License-Identifier: Apache-2.0
// Documents that are generated from the key table and the legality table.
#pragma once

#include <string>
#include <string_view>

namespace outrigger::config {

// docs/configuration.schema.json
[[nodiscard]] std::string schema_text();

// The key tables of docs/configuration.md, between its two marker lines.
[[nodiscard]] std::string key_tables();
[[nodiscard]] std::string with_key_tables(std::string_view page);  // the page with fresh tables

// docs/legality.md
[[nodiscard]] std::string legality_page();

}  // namespace outrigger::config
