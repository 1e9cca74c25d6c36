// SPDX-License-Identifier: Apache-2.0
// What a drawn composition of engines computes, in double and without any scale: layers of a few
// elements, and the random numbers that the drawing and the data come from.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "support.h"

namespace otr_test {

inline constexpr int64_t kWidth = 3;

class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : bits_(seed * 1000003 + stream) {}
  int32_t below(int32_t n) { return static_cast<int32_t>(bits_() % static_cast<uint64_t>(n)); }
  int32_t from(int32_t low, int32_t high) { return low + below(high - low + 1); }
  bool one_in(int32_t n) { return below(n) == 0; }
  // A multiple of 1/64 of up to `size`, never 0.
  double value(double size) { return (one_in(2) ? 1 : -1) * from(8, 64) / 64.0 * size; }
  Values values(int64_t count, double size) {
    Values v(static_cast<size_t>(count));
    for (double& x : v) x = value(size);
    return v;
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int32_t>(i)))]);
    }
  }

 private:
  std::mt19937_64 bits_;
};

// out = tanh(w in + b), for each sample; twice: the same once more, with the same weights.
struct Layer {
  Values w, b;
  bool twice = false;
};
struct Trace {
  std::vector<Values> inputs;  // of each application
  Values out;
};
[[nodiscard]] Trace forward(const Layer& layer, const Values& in);

struct Pulled {
  Values in;
  std::vector<Values> w;  // of each application, the last one first
  Values b;
};
[[nodiscard]] Pulled pull(const Layer& layer, const Trace& trace, Values out_grad);

[[nodiscard]] inline double largest(const Values& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, v < 0 ? -v : v);
  return most;
}
[[nodiscard]] inline Values times(Values values, double factor) {
  for (double& v : values) v *= factor;
  return values;
}
inline void add_to(Values& sum, const Values& values) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

}  // namespace otr_test
