// SPDX-License-Identifier: Apache-2.0
// An exchange to be tested, operations for it, and doors at which ranks wait for each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/base/text.h"
#include "core/comm/exchange.h"
#include "core/device/host.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {

inline std::unique_ptr<Exchange> exchange_of(Communicator& c) {
  return make_blocking_exchange(c.duplicate("sequence"), "the test's sequence");
}

inline void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Ranks are let go on by numbers of the board.
inline void open_door(size_t number) { board().numbers[number] = 1; }
inline bool is_open(size_t number) { return board().numbers[number] != 0; }
inline void wait_for_door(size_t number) {
  const double start = now();
  while (!is_open(number)) {
    require(now() - start < 10, "nobody opens the door");
    pause(1);
  }
}

inline constexpr size_t kSlice = 256;
inline constexpr size_t kBytes = kSlice * sizeof(float);

// Folds once the door is open.
class SlowHost final : public device::Host {
 public:
  SlowHost() : Host(nullptr) {}
  kernels::NormSum fold(const device::SliceFold& slice, device::Nonfinite& origin) override {
    if (door > 0) wait_for_door(door);
    return Host::fold(slice, origin);
  }
  size_t door = 0;
};

// Sums of small whole numbers, exact in any order, from places of a window.
struct Sums {
  Sums(Exchange& sequence, const Communicator& c, size_t places)
      : exchange(sequence),
        rank(c.rank()),
        world(c.size()),
        window(sequence.create_window(WindowKind::per_rank,
                                      places * kBytes * static_cast<size_t>(c.size()), "places")) {}
  ~Sums() { exchange.stop(); }  // a test that fails leaves operations behind

  [[nodiscard]] size_t offset(size_t place) const {
    return place * kBytes * static_cast<size_t>(world);
  }
  void fill(size_t place, float value) {
    ++fills;
    auto* values = reinterpret_cast<float*>(window->block(rank) + offset(place));
    std::fill_n(values, kSlice * static_cast<size_t>(world), value + static_cast<float>(rank));
  }
  // value + rank from each rank, added to what is there.
  Reduction reduction(size_t place, float value) {
    constexpr auto kFloat32 = kernels::Format::float32;
    return {{*window,
             offset(place),
             kBytes,
             host,
             {{}, kFloat32, sum, kFloat32, true, kSlice, 0},
             &norm},
            "sums",
            [this, place, value] { fill(place, value); },
            "reuse a place"};
  }
  void require_sum(float of_values) const {
    const auto ranks = static_cast<float>(world);
    require(sum[0] == of_values * ranks && sum[kSlice - 1] == sum[0],
            outrigger::format_text("{} of {}", sum[0], of_values * ranks));
  }

  Exchange& exchange;
  int32_t rank, world;
  std::atomic<int> fills{0};
  SlowHost host;
  std::shared_ptr<Window> window;
  float sum[kSlice] = {};
  kernels::NormSum norm;
};
// What the ranks' numbers add to a value, on average.
inline float ranks_mean(const Communicator& c) { return static_cast<float>(c.size() - 1) / 2; }

inline Combination nothing(const std::string& label) {
  return {{}, [](auto...) {}, label};
}

}  // namespace outrigger::comm::test
