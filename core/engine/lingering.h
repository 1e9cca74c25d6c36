// SPDX-License-Identifier: Apache-2.0
// Copies of offloaded parameters that stay on the device after their use, for the next one before
// the step. Which goes first when there is no room: a pass uses each parameter as often as the
// others, first forwards, then backwards, so the one that was used most often is needed last, and
// of these the one whose use ended first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace outrigger::engine {

class Lingering {
 public:
  struct Copy {
    int64_t root;
    int64_t uses;  // that ended
  };

  // most: elements on the device, those in use included, beyond which none lingers.
  explicit Lingering(int64_t most) : most_(most) {}

  // All copies are counted, those in use, too.
  void count(int64_t elements) { live_ += elements; }
  [[nodiscard]] bool has_room_for(int64_t elements) const { return elements <= most_ - live_; }

  void add(const Copy& copy) { copies_.push_back(copy); }
  // It is used again, or goes.
  void take(int64_t root) {
    std::erase_if(copies_, [root](const Copy& copy) { return copy.root == root; });
  }
  void clear() { copies_.clear(); }
  // The one to go first, of those that were used more often than `uses`.
  [[nodiscard]] std::optional<int64_t> first_to_go(int64_t uses) const {
    const auto most = std::ranges::max_element(copies_, {}, &Copy::uses);
    if (most == copies_.end() || most->uses <= uses) return {};
    return most->root;
  }

 private:
  int64_t most_, live_ = 0;
  std::vector<Copy> copies_;  // in the order in which uses ended
};

}  // namespace outrigger::engine
