// SPDX-License-Identifier: Apache-2.0
// Where one rank has all states on a device, the device decides about a step, and the host hears of
// it later: the sums of squares, what follows from them, and its copy on the host.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/config/config.h"
#include "core/device/decider.h"
#include "core/engine/movable.h"
#include "core/engine/plan.h"
#include "core/memory/block.h"
#include "core/memory/pinned.h"

namespace outrigger::engine {

class DeviceDecision {
 public:
  // Null where the plan or the device has no such decisions.
  [[nodiscard]] static std::unique_ptr<DeviceDecision> make(device::Device& device,
                                                            const Plan& plan, config::Pin pin,
                                                            memory::Ledger& ledger);
  DeviceDecision(device::Device& device, device::Decider& decider, const Plan& plan,
                 config::Pin pin, memory::Ledger& ledger);
  ~DeviceDecision();
  DeviceDecision(const DeviceDecision&) = delete;
  DeviceDecision& operator=(const DeviceDecision&) = delete;

  // By bucket, each of Decider::kSumBytes; what follows from them is behind them.
  [[nodiscard]] const memory::Block& sums() const { return there_; }
  // Between two windows it holds nothing.
  void list_movable(std::vector<Movable>& all) {
    add_movable(all, OTR_STATES_GRADIENTS, memory::Purpose::buckets, there_, false);
  }

  // These three are in the order of the device's own stream, and wait for nothing.
  struct Rules {
    double mean, clipping;
    int32_t skip, skip_nonfinite;  // see device::Decide
  };
  void decide(const Rules& rules);
  void update(std::span<const kernels::Update> pieces);
  // What has come of it, to the host.
  void send();

  // What was sent is here.
  [[nodiscard]] bool has_come() const { return device_.is_done(sent_); }
  [[nodiscard]] device::Decided wait();
  // After this event the step is over on the device; empty before the first.
  [[nodiscard]] const device::Event& sent() const { return sent_; }

 private:
  [[nodiscard]] std::byte* decision() const;
  device::Device& device_;
  device::Decider& decider_;
  int64_t sums_;
  memory::Block there_, here_;
  std::byte* const copy_;  // at a page's begin, which nobody else locks or unlocks
  memory::Pinned pinned_;
  device::Event sent_;
};

}  // namespace outrigger::engine
