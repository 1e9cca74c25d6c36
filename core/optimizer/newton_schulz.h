// SPDX-License-Identifier: Apache-2.0
// The orthogonal matrix near a given one, by iteration: what makes Muon's direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/device/device.h"

namespace outrigger::optimizer {

// For the Frobenius norm |G| + 1e-7 = f: X = G / f, then in each step
//   A = X X^T;  X = a X + (b A + c A A) X      a, b, c = 3.4445, -4.7750, 2.0315
// of the transpose where rows > columns. In float32, in one order of additions: the same bits on
// any number of threads. Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/
class NewtonSchulz {
 public:
  // The memory for matrices of at most these sizes.
  struct Room {
    int64_t elements = 0, square = 0;  // of a matrix; of its smaller dimension
    void include(int64_t rows, int64_t columns);
    [[nodiscard]] int64_t bytes() const;
  };

  NewtonSchulz() = default;
  // memory: room.bytes() of the device's, aligned to 64, which outlives this. All work is done in
  // the order of the device's own stream; take() also waits for it.
  NewtonSchulz(device::Device& device, const Room& room, std::byte* memory);

  // Where the caller puts a matrix, row by row.
  [[nodiscard]] float* matrix() const { return matrix_; }
  // Takes it from there: matrix() is free until solve().
  void take(int64_t rows, int64_t columns);
  // The result of what was taken, row by row, until the next take(). Overwrites matrix(). Calls
  // `between` after each product, kProducts times in a step.
  static constexpr int32_t kProducts = 3;
  [[nodiscard]] float* solve(int32_t steps, const std::function<void()>& between);

 private:
  device::Device* device_ = nullptr;
  float *matrix_ = nullptr, *taken_ = nullptr, *gram_ = nullptr, *polynomial_ = nullptr;
  int64_t rows_ = 0, columns_ = 0;
};

}  // namespace outrigger::optimizer
