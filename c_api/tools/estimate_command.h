// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace outrigger::tools {

struct EstimateRequest {
  std::string config;  // file; empty: defaults
  std::string model;   // file, see shapes.h
  int world = 1;
  int ranks_per_host = 0;  // 0: all
  double host_gib = 0;     // 0: what this machine has free
  bool json = false;
};

// Prints what the model needs a rank and a host, in our layout and in DeepSpeed's, and which stages
// and precisions would fit. Returns the exit code: 0 if it fits, 1 if not, or for a fault.
int estimate(const EstimateRequest& request);

}  // namespace outrigger::tools
