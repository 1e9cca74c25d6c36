// SPDX-License-Identifier: Apache-2.0
// otr_fuzz_dictionary FILE: writes the words of the configuration in libFuzzer's form.

#include <fstream>
#include <iostream>

#include "core/base/text.h"
#include "tests/fuzz/config/mutate.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: otr_fuzz_dictionary FILE\n";
    return 2;
  }
  std::ofstream file(argv[1]);
  for (const std::string& word : otr_fuzz::words()) {
    file << '"';
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte > 0x7e || c == '"' || c == '\\') {
        file << outrigger::format_text("\\x{:02X}", byte);
      } else {
        file << c;
      }
    }
    file << "\"\n";
  }
  file.close();
  if (!file) {
    std::cerr << "otr_fuzz_dictionary: cannot write " << argv[1] << "\n";
    return 1;
  }
  return 0;
}
