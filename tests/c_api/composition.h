// SPDX-License-Identifier: Apache-2.0
// One drawn composition on one rank: engines of different scale, accumulation and group in a chain,
// and each way the header has to take gradients through them.
#pragma once

#include <barrier>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "composition_model.h"

namespace otr_test {

// How one engine is set up.
struct Setup {
  std::string config;
  int32_t accumulation = 1;
  bool counted = false;    // "accumulation_divisor"
  bool by_caller = false;  // who ends windows
  bool own_group = false;  // a group of one on each rank
  bool sum = false;        // "gradient_allreduce_op"
  double scale = 1;        // the largest it may come to
  double clip = 0;
  double rounding = 0x1p-22;  // of a contribution, relative
  bool twice = false, alias = false, declared = false;
};
[[nodiscard]] Setup draw_setup(Random& random, int32_t world, double clip);

// What the ranks tell each other beside the library, and what forms were met.
struct Board {
  explicit Board(int32_t world) : barrier(world), sums(static_cast<size_t>(world)) {}
  // One rank's share of the mean gradient of one parameter, and how wrong rounding may make it.
  struct Sum {
    Values mean;
    double bound = 0;
  };
  std::barrier<> barrier;
  std::vector<std::vector<std::vector<Sum>>> sums;  // by rank, engine, parameter
};

// The forms that all compositions together have to meet, and how often they did.
class Forms {
 public:
  void met(const char* form) {
    const std::lock_guard lock(mutex_);
    ++counts_[form];
  }
  [[nodiscard]] int32_t count(const std::string& form) const {
    const auto found = counts_.find(form);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int32_t> counts_;
};

// Runs on every rank, with the same seed; compares every gradient and every weight.
void run_composition(uint64_t seed, int32_t rank, int32_t world, otr_context* context,
                     otr_comm* comm, Board& board, Forms& forms);

}  // namespace otr_test
