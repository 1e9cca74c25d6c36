// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/outliers.h"

#include <cmath>

namespace outrigger::optimizer {

bool OutlierGuard::is_outlier(double norm) const {
  const auto seen = static_cast<int64_t>(last_.size());
  if (!is_on() || seen < 2 || 2 * seen < rules_.window) return false;
  // Anew for each norm, so that the answer depends on the last norms only. Two passes over at most
  // a few thousand numbers.
  double mean = 0, squares = 0;
  for (const double x : last_) mean += x;
  mean /= static_cast<double>(seen);
  for (const double x : last_) squares += (x - mean) * (x - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(seen - 1));
  return norm > mean + rules_.deviations * deviation;
}

void OutlierGuard::note(double norm) {
  if (!is_on() || !std::isfinite(norm)) return;
  last_.push_back(norm);
  if (static_cast<int64_t>(last_.size()) > rules_.window) last_.pop_front();
}

void OutlierGuard::restore(const std::vector<double>& norms) {
  last_.clear();
  for (const double norm : norms) note(norm);
}

}  // namespace outrigger::optimizer
