// SPDX-License-Identifier: Apache-2.0
// Configurations that need less memory than a given one, and how large a model each takes.
#pragma once

#include <string>
#include <vector>

#include "machine.h"
#include "model.h"

namespace outrigger::tools {

// A change of the configuration, as a JSON merge patch.
struct Change {
  std::string name;  // empty: the configuration as it is
  Json patch;
  Json config;  // the whole, changed
  Bytes needed;
};

// Those that are legal and need less of a memory than the given one and each before: higher stages,
// with a device offload, then bfloat16, then bfloat16 master and states. config: a JSON object.
[[nodiscard]] std::vector<Change> changes_of(const Json& config,
                                             const std::vector<NamedShape>& shapes,
                                             const Setting& setting, const Model& given);

// The most of a model's tensors, one after the other and from the first again after the last, that
// fit into the room: to a thousandth, or a tensor if that is more.
struct Largest {
  int64_t parameters = 0, tensors = 0;
  bool bounded = true;  // false: so many fit, and no more were tried
};
[[nodiscard]] Largest largest_of(const std::string& config, const std::vector<NamedShape>& shapes,
                                 const Setting& setting, const Bytes& room);

}  // namespace outrigger::tools
