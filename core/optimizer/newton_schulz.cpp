// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "core/optimizer/rule.h"

namespace outrigger::optimizer {
namespace {

using kernels::Format;

constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;
constexpr double kEpsilon = 1e-7;

// Each part of the memory begins at a cache line.
int64_t padded(int64_t elements) { return (elements + 15) / 16 * 16; }

}  // namespace

void NewtonSchulz::Room::include(int64_t rows, int64_t columns) {
  const int64_t smaller = std::min(rows, columns);
  elements = std::max(elements, rows * columns);
  square = std::max(square, smaller * smaller);
}

int64_t NewtonSchulz::Room::bytes() const {
  return 2 * (padded(elements) + padded(square)) * static_cast<int64_t>(sizeof(float));
}

NewtonSchulz::NewtonSchulz(device::Device& device, const Room& room, std::byte* memory)
    : device_(&device),
      matrix_(reinterpret_cast<float*>(memory)),
      taken_(matrix_ + padded(room.elements)),
      gram_(taken_ + padded(room.elements)),
      polynomial_(gram_ + padded(room.square)) {}

void NewtonSchulz::take(int64_t rows, int64_t columns) {
  rows_ = rows;
  columns_ = columns;
  const int64_t count = rows * columns;
  const double norm = norm_of(device_->norm(matrix_, Format::float32, count, 0));
  const auto factor = static_cast<float>(1 / (norm + kEpsilon));
  const float* from = matrix_;
  if (rows > columns) {
    device_->transpose(taken_, matrix_, rows, columns);
    from = taken_;
  }
  device_->convert(taken_, Format::float32, from, Format::float32, factor, count,
                   device_->own_stream());
}

float* NewtonSchulz::solve(int32_t steps, const std::function<void()>& between) {
  const int64_t m = std::min(rows_, columns_), n = std::max(rows_, columns_);
  float *x = taken_, *other = matrix_;
  const auto multiply = [&](const kernels::Product& product, device::Device::Symmetric symmetric) {
    device_->multiply(product, symmetric);
    between();
  };
  using enum device::Device::Symmetric;
  for (int32_t step = 0; step < steps; ++step) {
    device_->transpose(other, x, m, n);
    multiply({x, other, m, n, m, 1, nullptr, 0, gram_}, yes);
    multiply({gram_, gram_, m, m, m, kC, gram_, kB, polynomial_}, yes);
    multiply({polynomial_, x, m, m, n, 1, x, kA, other}, no);
    std::swap(x, other);
  }
  if (rows_ > columns_) {
    device_->transpose(other, x, m, n);
    std::swap(x, other);
  }
  if (x == matrix_) {
    device_->copy(taken_, matrix_, static_cast<size_t>(m * n) * sizeof(float),
                  device_->own_stream());
  }
  return taken_;
}

}  // namespace outrigger::optimizer
