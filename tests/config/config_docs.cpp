// SPDX-License-Identifier: Apache-2.0
// otr_config_docs DIRECTORY: writes configuration.schema.json and legality.md into it, and the key
// tables into its configuration.md.
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/config/docs.h"

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path);
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: otr_config_docs DIRECTORY\n";
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  try {
    const std::string page = read(folder + "configuration.md");
    write(folder + "configuration.md", outrigger::config::with_key_tables(page));
    write(folder + "configuration.schema.json", outrigger::config::schema_text());
    write(folder + "legality.md", outrigger::config::legality_page());
  } catch (const std::exception& error) {
    std::cerr << "otr_config_docs: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
