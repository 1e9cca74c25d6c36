// SPDX-License-Identifier: Apache-2.0
// What holds for any bytes that are given as a message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace otr_fuzz_message {

struct Verdict {
  bool accepted = false;  // without a look at the checksum
  std::string broken;     // the first property that does not hold; empty: all do
};

// An accepted message has its tensors inside its bytes and aligned, can be sealed and is then
// right, and what is packed of its parts reads the same.
[[nodiscard]] Verdict check_message(std::string_view bytes);

// Messages of all dtypes, of none, with a tag, with attributes.
[[nodiscard]] const std::vector<std::string>& seeds();

}  // namespace otr_fuzz_message
