// SPDX-License-Identifier: Apache-2.0
#include "core/engine/device_decision.h"

#include <cstdint>
#include <cstring>
#include <exception>

namespace outrigger::engine {

using device::Decider;
using memory::Purpose;

namespace {

// The first that begins at or behind it.
std::byte* page_in(std::byte* data) {
  const auto past = reinterpret_cast<uintptr_t>(data) % Plan::kPage;
  return past == 0 ? data : data + (Plan::kPage - past);
}

}  // namespace

std::unique_ptr<DeviceDecision> DeviceDecision::make(device::Device& device, const Plan& plan,
                                                     config::Pin pin, memory::Ledger& ledger) {
  device::Decider* const decider = device.decider();
  if (plan.sums == 0 || decider == nullptr) return nullptr;
  return std::make_unique<DeviceDecision>(device, *decider, plan, pin, ledger);
}

DeviceDecision::DeviceDecision(device::Device& device, Decider& decider, const Plan& plan,
                               config::Pin pin, memory::Ledger& ledger)
    : device_(device),
      decider_(decider),
      sums_(plan.sums),
      there_(ledger, Purpose::buckets, plan.decisions(), &device),
      here_(ledger, Purpose::buckets, plan.decision_copy()),
      copy_(page_in(here_.data())),
      pinned_(device, ledger, {copy_, static_cast<size_t>(Plan::kPage)}, pin) {}

std::byte* DeviceDecision::decision() const {
  return there_.data() + sums_ * static_cast<int64_t>(Decider::kSumBytes);
}

void DeviceDecision::decide(const Rules& rules) {
  decider_.decide(
      {there_.data(), sums_, rules.mean, rules.clipping, rules.skip, rules.skip_nonfinite},
      decision());
}

void DeviceDecision::update(std::span<const kernels::Update> pieces) {
  decider_.update(pieces, decision());
}

// Nothing of the device's is on its way to memory that is given back.
DeviceDecision::~DeviceDecision() {
  try {
    if (!sent_ || device_.is_done(sent_)) return;
  } catch (const std::exception&) {  // of a device that is lost: then drain() sees to it
  }
  device_.drain();
}

void DeviceDecision::send() {
  device_.download(copy_, decision(), Decider::kDecisionBytes, device_.own_stream());
  try {
    sent_ = device_.record(device_.own_stream());
  } catch (...) {
    device_.drain();
    throw;
  }
}

device::Decided DeviceDecision::wait() {
  if (!has_come()) device_.synchronize(sent_);
  Decider::Copy copy;
  std::memcpy(copy.data(), copy_, copy.size());
  return decider_.read(copy);
}

}  // namespace outrigger::engine
