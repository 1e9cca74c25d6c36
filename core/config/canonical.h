// SPDX-License-Identifier: Apache-2.0
// One value against its row of the key table.
#pragma once

#include <string>

#include "core/config/document.h"
#include "core/config/keys.h"

namespace outrigger::config {

// The value in canonical form: integers as integers (5e8 too), numbers as doubles, choices and
// dtypes in the table's spelling. Throws OTR_E_CONFIG if type or range is wrong; `path` is the
// text's.
[[nodiscard]] Json canonical(const Node& node, const Key& key, const std::string& path);

// The error for a value that is not legal: line, path, value, legal range, hint.
[[noreturn]] void not_legal(const Node& node, const Key& key, const std::string& path);

}  // namespace outrigger::config
