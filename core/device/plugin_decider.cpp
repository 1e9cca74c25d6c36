// SPDX-License-Identifier: Apache-2.0
// A plugin's device that decides by itself.
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/device/plugin.h"
#include "core/device/plugin_described.h"

namespace outrigger::device {

static_assert(Decider::kSumBytes == OTR_PLUGIN_SUM_BYTES &&
              Decider::kDecisionBytes == sizeof(otr_plugin_decision));

void PluginDevice::fold(const SliceFold& slice, std::byte* sum) {
  if (slice.count == 0) return;
  otr_plugin_fold fold = described(slice);
  fold.sum = sum;
  check(table_.fold(device_, &fold, own_stream()), "a sum over ranks");
}

void PluginDevice::decide(const Decide& how, std::byte* decision) {
  otr_plugin_decide given{};
  given.struct_size = sizeof given;
  given.sums = how.sums;
  given.count = how.count;
  given.mean = how.mean;
  given.clipping = how.clipping;
  given.skip = how.skip;
  given.skip_nonfinite = how.skip_nonfinite;
  given.decision = reinterpret_cast<otr_plugin_decision*>(decision);
  check(table_.decide(device_, &given, own_stream()), "a decision");
}

void PluginDevice::update(std::span<const kernels::Update> pieces, std::byte* decision) {
  if (pieces.empty()) return;
  std::vector<otr_plugin_update> list;
  list.reserve(pieces.size());
  for (const kernels::Update& piece : pieces) {
    list.push_back(described(piece));
    list.back().decision = reinterpret_cast<otr_plugin_decision*>(decision);
  }
  check(
      table_.update(device_, list.data(), static_cast<int64_t>(list.size()), nullptr, own_stream()),
      "the update");
}

Decided PluginDevice::read(const Copy& decision) const {
  otr_plugin_decision d{};
  std::memcpy(&d, decision.data(), sizeof d);
  return {sum_of(d.total), {d.total.first_nonfinite, d.total.first_rank},
          d.norm,          d.clip,
          d.skip,          {d.updates, d.vanished}};
}

}  // namespace outrigger::device
