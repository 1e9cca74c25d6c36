// SPDX-License-Identifier: Apache-2.0
// Steps that a device decides by itself, so that no host waits for a norm: what host and device
// compute alike stands in kernels/reference/decide.h. All work is done in the order of the device's
// own stream, and the caller orders what follows it elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/device/device.h"

namespace outrigger::device {

// From sums to a decision.
struct Decide {
  const std::byte* sums;  // so many, kSumBytes apart
  int64_t count;
  double mean, clipping;
  int32_t skip;            // not 0: the decision's, whatever the sums
  int32_t skip_nonfinite;  // the decision's if an element is not finite; 0: none
};

// What became of it, as the host reads it.
struct Decided {
  kernels::NormSum total;
  Nonfinite origin;
  double norm = 0, clip = 1;
  int32_t skip = 0;
  kernels::UpdateCount count;
};

class Decider {
 public:
  static constexpr size_t kSumBytes = 256, kDecisionBytes = 144;
  using Copy = std::array<std::byte, kDecisionBytes>;  // of a decision

  virtual ~Decider() = default;
  // Device::fold, with the norm in the device's memory; with add, the origin of the folds before
  // stays in it.
  virtual void fold(const SliceFold& slice, std::byte* sum) = 0;
  virtual void decide(const Decide& how, std::byte* decision) = 0;
  // Device::update, of rules that treat every element by itself. The decision gives the gradient
  // factor and gets the counts.
  virtual void update(std::span<const kernels::Update> pieces, std::byte* decision) = 0;
  [[nodiscard]] virtual Decided read(const Copy& decision) const = 0;
};

}  // namespace outrigger::device
