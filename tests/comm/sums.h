// SPDX-License-Identifier: Apache-2.0
// An exchange to be tested, operations for it, and doors at which ranks wait for each other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/exchange.h"
#include "core/context/interrupt.h"
#include "core/device/host.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {

// What the call throws.
inline std::string text_of(const std::function<void()>& call, int32_t status,
                           const std::vector<std::string>& says = {}) {
  std::string text;
  try {
    call();
    require(false, "nothing was thrown");
  } catch (const Error& error) {
    require(error.status() == status, error.what());
    text = error.what();
  }
  for (const std::string& part : says) {
    require(text.find(part) != std::string::npos, "'" + part + "' is not in: " + text);
  }
  return text;
}

// A host that wants waits to end as long as `stop` says so.
struct ImpatientHost {
  std::atomic<bool> stop{true};
  Context context{[this] {
    otr_context_options options{};
    options.struct_size = sizeof options;
    options.log_level = OTR_LOG_ERROR;
    options.interrupt_callback = [](void* wanted) -> int32_t {
      return *static_cast<std::atomic<bool>*>(wanted) ? 1 : 0;
    };
    options.interrupt_user_data = &stop;
    return options;
  }()};
};

// Where an exchange's operations run.
enum class Runs { on_a_thread, in_waits };

// Every provider of Exchange, over every provider of Communicator that the test names.
class ExchangeTest : public testing::TestWithParam<std::tuple<Ranks, Runs>> {
 protected:
  [[nodiscard]] const Ranks& group() const { return std::get<0>(GetParam()); }
  [[nodiscard]] bool runs_in_waits() const { return std::get<1>(GetParam()) == Runs::in_waits; }
  [[nodiscard]] std::unique_ptr<Exchange> exchange_of(Communicator& c) const {
    const auto make = runs_in_waits() ? make_inline_exchange : make_blocking_exchange;
    return make(c.duplicate("sequence"), "the test's sequence", {});
  }
};
inline const auto kRuns = testing::Values(Runs::on_a_thread, Runs::in_waits);
inline std::string name_of_case(const testing::TestParamInfo<std::tuple<Ranks, Runs>>& info) {
  const auto& [group, runs] = info.param;
  return name_of(group) + (runs == Runs::in_waits ? "_in_waits" : "_on_a_thread");
}

// A wait for all, beside the test's rank.
class WaitBeside {
 public:
  explicit WaitBeside(Exchange& exchange)
      : exchange_(exchange), thread_([this] {
          try {
            exchange_.wait_all();
          } catch (...) {
            thrown_ = std::current_exception();
          }
        }) {}
  ~WaitBeside() {
    if (!thread_.joinable()) return;
    exchange_.stop();
    thread_.join();
  }
  WaitBeside(const WaitBeside&) = delete;
  WaitBeside& operator=(const WaitBeside&) = delete;
  // Throws what the wait has thrown.
  void join() {
    thread_.join();
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  Exchange& exchange_;
  std::exception_ptr thrown_;
  std::thread thread_;
};

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
