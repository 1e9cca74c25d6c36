// SPDX-License-Identifier: Apache-2.0
// What holds for every text that is given as a folder with a checkpoint.
#pragma once

#include <string>

#include "tests/fuzz/checkpoint/bundle.h"

namespace otr_fuzz_checkpoint {

struct Verdict {
  bool opened = false, verified = false, loaded = false;
  std::string broken;  // the first property that does not hold; empty: all do
};

// An error of the documented statuses, or values: those that were saved, where the manifest is a
// seed's. What is verified can be read. A load that is refused leaves the engine as it was.
[[nodiscard]] Verdict check(const Bundle& bundle);
// Less, and quick: "opened", "verified" and "broken" only.
[[nodiscard]] Verdict check_open(const Bundle& bundle);

}  // namespace otr_fuzz_checkpoint
