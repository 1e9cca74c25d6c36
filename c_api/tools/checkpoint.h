// SPDX-License-Identifier: Apache-2.0
// A checkpoint that a command looks at.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "outrigger.h"

namespace outrigger::tools {

class Checkpoint {
 public:
  // tag empty: the latest. Throws Fault.
  Checkpoint(const std::string& directory, const std::string& tag);

  [[nodiscard]] otr_checkpoint* get() const { return handle_.get(); }
  // As otr_checkpoint_describe tells it.
  [[nodiscard]] const nlohmann::ordered_json& description() const { return description_; }

 private:
  struct Destroy {
    void operator()(otr_checkpoint* checkpoint) const { otr_checkpoint_destroy(checkpoint); }
  };
  std::unique_ptr<otr_checkpoint, Destroy> handle_;
  nlohmann::ordered_json description_;
};

// As otr_checkpoint_list tells it.
[[nodiscard]] nlohmann::ordered_json checkpoints_in(const std::string& directory);

// Where two checkpoints differ: {"parameter", "state", "what"}, and where values do "differing"
// (how many elements) and "max_abs" (the largest difference; null where one is no number).
[[nodiscard]] nlohmann::ordered_json differences(const Checkpoint& one, const Checkpoint& other);

}  // namespace outrigger::tools
