// SPDX-License-Identifier: Apache-2.0
// What holds for every text that is given as a folder with a Hugging Face model.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/safetensors/mutate.h"

namespace otr_fuzz_huggingface {

inline constexpr size_t kFiles = 3;  // the index, two files with tensors
using Model = std::array<std::string, kFiles>;

// Each file behind its length in four bytes.
[[nodiscard]] std::string text_of(const Model& model);
[[nodiscard]] Model model_of(std::string_view text);

struct Verdict {
  bool imported = false;
  std::string broken;  // the first property that does not hold; empty: all do
};

// A refusal of the documented statuses that leaves nothing; or a checkpoint of exactly the tensors
// that the index names, with the bytes of the files. Nothing outside the folder is opened.
[[nodiscard]] Verdict check(const Model& model);

using otr_fuzz_safetensors::below;
using otr_fuzz_safetensors::Random;

// Models that are imported.
[[nodiscard]] const std::vector<Model>& seeds();
[[nodiscard]] Model mutate(Model model, Random& random);

}  // namespace otr_fuzz_huggingface
