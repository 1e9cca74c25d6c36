// SPDX-License-Identifier: Apache-2.0
// Whole files as text.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <istream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace outrigger::tools {

inline std::string read_all(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Throws std::runtime_error.
inline std::string read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(fmt::format("cannot open {}", file));
  return read_all(in);
}

}  // namespace outrigger::tools
