// SPDX-License-Identifier: Apache-2.0
// What holds for every text that is given as a safetensors file.
#pragma once

#include <string>
#include <string_view>

namespace otr_fuzz_safetensors {

struct Verdict {
  bool accepted = false;
  std::string broken;  // the first property that does not hold; empty: all do
};

[[nodiscard]] Verdict check_file(std::string_view file);

}  // namespace otr_fuzz_safetensors
