// SPDX-License-Identifier: Apache-2.0
// Work done ahead by a few threads, whose results one takes in order.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>

#include "core/base/serial_worker.h"

namespace outrigger {

// make(lane, i) on a thread of each lane, take(lane, i) here, for i from 0 to count − 1 in order. A
// lane makes its next one when its last is taken. Throws what they throw, when all threads have
// ended. what: names the threads where the system has none to give.
template <typename Make, typename Take>
void in_lanes(int64_t lanes, int64_t count, const char* what, const Make& make, const Take& take) {
  std::deque<SerialWorker> workers;
  const auto begin = [&](int64_t i) {
    workers[static_cast<size_t>(i % lanes)].add([&make, i, lane = i % lanes] { make(lane, i); });
  };
  for (int64_t i = 0; i < std::min(lanes, count); ++i) {
    workers.emplace_back(what);
    begin(i);
  }
  for (int64_t i = 0; i < count; ++i) {
    SerialWorker& worker = workers[static_cast<size_t>(i % lanes)];
    while (!worker.wait_for(static_cast<uint64_t>(i / lanes + 1), std::chrono::seconds(1))) {
    }
    take(i % lanes, i);
    if (i + lanes < count) begin(i + lanes);
  }
}

}  // namespace outrigger
