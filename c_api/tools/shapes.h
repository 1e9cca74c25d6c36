// SPDX-License-Identifier: Apache-2.0
// A model's parameters by name and shape, from files that others write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outrigger::tools {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

// By the file's kind: a safetensors file (its header is read, its data only counted), a Hugging
// Face config.json (model_type gpt2, llama, mistral or qwen2), or a JSON object {"name": [extents],
// …}. Throws Fault that names file, place and remedy.
[[nodiscard]] std::vector<NamedShape> read_shapes(const std::string& file);

}  // namespace outrigger::tools
