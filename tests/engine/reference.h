// SPDX-License-Identifier: Apache-2.0
// The model's training in double, from the rules' papers and exact gradients: no kernel of the
// library, no formats, no order of addition.
#pragma once

#include <vector>

#include "tests/engine/model.h"

namespace outrigger::test {

struct Reference {
  std::vector<std::vector<double>> weights;  // by parameter
  // How far each weight would have moved if no two gradients had opposite signs (SGD and Nesterov).
  // A rounding that changes a gradient by some part of it moves the weight by no larger part of
  // this.
  std::vector<std::vector<double>> movement;
};
[[nodiscard]] Reference train_in_double(const Case& c);

}  // namespace outrigger::test
