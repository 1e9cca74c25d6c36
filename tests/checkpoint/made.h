// SPDX-License-Identifier: Apache-2.0
// A small checkpoint of two ranks, piece by piece, so that a test can make any of it lie.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"

namespace outrigger::checkpoint::test {

using Json = nlohmann::ordered_json;

// Parameters w (600 elements, float32, trainable, cut after 256), f (3 × 5, bfloat16, frozen, on
// rank 0) and t, an alias of w. Every rank's host gave "place".
struct Made {
  struct Tensor {
    TensorSpec spec;
    std::string bytes;
  };
  Made();
  // As checkpoint "a" in a folder, with `latest`. Size, hash and seal are those of what is written.
  void write(const std::string& path) const;

  Manifest manifest;
  Index index;
  std::vector<std::vector<Tensor>> ranks;  // by rank
  std::vector<Metadata> metadata;          // by rank
};

// Of a sealed manifest.
[[nodiscard]] std::string sealed(Json json);
// Changes what the manifest says, and seals it.
void edit_manifest(const std::string& path, const std::function<void(Json&)>& edit);

// What opening "a", and reading all of it, fails with; or "".
[[nodiscard]] std::string fault_of_open(const std::string& path);

}  // namespace outrigger::checkpoint::test
