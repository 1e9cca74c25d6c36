// SPDX-License-Identifier: Apache-2.0
// Which gradient norms are so far beyond the last ones that their step is better left out.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/config/config.h"

namespace outrigger::optimizer {

class OutlierGuard {
 public:
  explicit OutlierGuard(const config::OutlierNorms& rules) : rules_(rules) {}

  [[nodiscard]] bool is_on() const { return rules_.window > 0; }
  // The norm is beyond mean + deviations x standard deviation of the last `window` ones; no norm is
  // before half a window was seen.
  [[nodiscard]] bool is_outlier(double norm) const;
  // Notes the norm of a window that is over. Outliers are noted, too: where norms stay higher, the
  // bound follows. What is not finite is not.
  void note(double norm);
  // The noted norms, the oldest first.
  [[nodiscard]] const std::deque<double>& norms() const { return last_; }
  void restore(const std::vector<double>& norms);

 private:
  config::OutlierNorms rules_;
  std::deque<double> last_;
};

}  // namespace outrigger::optimizer
