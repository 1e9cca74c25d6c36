// SPDX-License-Identifier: Apache-2.0
// Whole files as text.
#pragma once

#include <fstream>
#include <istream>
#include <string>

namespace outrigger::tools {

[[nodiscard]] std::string read_all(std::istream& in);

// To be read. Throws Misuse with the reason.
[[nodiscard]] std::ifstream open_file(const std::string& file);

// Throws Misuse, too.
[[nodiscard]] std::string read_file(const std::string& file);

// Throws Fault, unless the file is new or `replace` is set; one that exists is replaced as a whole
// or not at all.
void write_file(const std::string& file, const std::string& text, bool replace);

}  // namespace outrigger::tools
