// SPDX-License-Identifier: Apache-2.0
// What the tests of two levels have in common.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/device/host.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {

// Sums of ones over a window of the communicator's own, 256 for each rank.
struct Sums {
  explicit Sums(Communicator& c, device::Host* other = nullptr)
      : bytes(256 * sizeof(float)),
        window(c.create_window(WindowKind::per_rank, static_cast<size_t>(c.size()) * bytes, "w")),
        device(other == nullptr ? host : *other) {
    auto* values = reinterpret_cast<float*>(window->block(c.rank()));
    std::fill_n(values, 256 * c.size(), 1.0F);
  }
  void reduce(Communicator& c, const char* label = "grads") {
    constexpr auto kFloat32 = kernels::Format::float32;
    ticket =
        c.reduce({*window, 0, bytes, device, {{}, kFloat32, sum, kFloat32, false, 256, 0}}, label);
    require(sum[7] == static_cast<float>(c.size()), "sum");
  }
  size_t bytes;
  std::shared_ptr<Window> window;
  device::Host host{nullptr};
  device::Host& device;
  float sum[256] = {};
  uint64_t ticket = 0;
};

// All but the rank `but` have the status, and one and the same text, which is returned.
inline std::string one_text(const std::vector<Outcome>& outcomes, int32_t status,
                            int32_t but = -1) {
  std::string text;
  for (size_t r = 0; r < outcomes.size(); r++) {
    if (static_cast<int32_t>(r) == but) continue;
    EXPECT_EQ(outcomes[r].status, status) << "rank " << r << ": " << outcomes[r].text;
    if (text.empty()) text = outcomes[r].text;
    EXPECT_EQ(outcomes[r].text, text) << "rank " << r;
  }
  return text;
}

}  // namespace outrigger::comm::test
