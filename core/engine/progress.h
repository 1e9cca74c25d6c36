// SPDX-License-Identifier: Apache-2.0
// All that a run is besides tensors, between two windows. With the same values of every parameter
// and the same gradients it goes on with the same bits.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/optimizer/loss_scaler.h"
#include "outrigger.h"

namespace outrigger::engine {

struct Progress {
  int64_t micro_steps = 0, applied_steps = 0, skipped_steps = 0;
  int32_t boundary = OTR_BOUNDARY_CONFIGURED;
  optimizer::LossScaler::State loss_scaler{.scale = 1, .hysteresis_left = 1};
  std::vector<double> outlier_norms;  // the oldest first

  // Hyperparameters that can be set, by public name.
  struct Group {
    std::string name;
    std::vector<std::pair<std::string, double>> values;
  };
  std::vector<Group> groups;

  // Of `trainable` parameters, aliases not counted: those that are frozen now; how many updates
  // most have had, and the others, by name.
  int64_t trainable = 0;
  std::vector<std::string> frozen;
  int64_t usual_updates = 0;
  std::vector<std::pair<std::string, int64_t>> other_updates;
  std::string model;  // a hash of their names and shapes

  // Where these are others, a run that goes on has other bits.
  struct Circumstances {
    int32_t world = 1;
    int32_t groups = 1;  // of ranks, that are summed first: hosts, or of a mesh
    std::string reduction_order;
    uint64_t seed = 0;
    std::string optimizer;
    bool operator==(const Circumstances&) const = default;
  };
  Circumstances made_with;
};

// One line of JSON; doubles come back as they were.
[[nodiscard]] std::string to_json(const Progress& progress);
// Throws OTR_E_CONFIG: not JSON, a member is missing or not known, a value is out of its range.
[[nodiscard]] Progress parse_progress(std::string_view json);
// The same for what a checkpoint has, which may count updates alone: then it has no groups.
void require_saved_progress(std::string_view json);
// Throws OTR_E_NOT_FOUND, too: not even updates are known.
[[nodiscard]] Progress saved_progress(std::string_view json, const char* call);

// Progress::model of a model whose trainable parameters have these lines: a name, and behind a new
// line each extent.
[[nodiscard]] std::string model_hash(const std::set<std::string>& lines);
// How many updates parameters have had, by name.
void count_updates(Progress& progress, const std::vector<std::pair<std::string, int64_t>>& counts);
[[nodiscard]] Progress::Group group_of(std::string name, const config::OptimizerConfig& optimizer);
// The group's values. Throws as set_hyperparameter; then some may be set.
void set_values(config::OptimizerConfig& optimizer, const Progress::Group& group);

}  // namespace outrigger::engine
