// SPDX-License-Identifier: Apache-2.0
// Which parameters are as the step leaves them, while that goes on beside the host: a forward
// begins with the first ones. Written by the step's thread, asked by the host's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/layout/layout.h"

namespace outrigger::engine {

class NewWeights {
 public:
  // The host begins a step of so many parameters.
  void begin(int64_t parameters);
  // It updates these pieces, each the whole of its root; all others are as it leaves them. Not
  // called: all are when it is over.
  void expect(std::span<const layout::Piece> pieces);
  // All roots come in parts, in an order. needs, by root: how many of the first parts it needs;
  // come: how many all ranks have by now, which who waits asks often. Both stay until the end.
  void expect(std::span<const uint64_t> needs, std::function<uint64_t()> come);
  // Somebody may wait for some of them before the others.
  [[nodiscard]] bool is_awaited() const;
  // So many elements of the root are updated, and who acquires it sees them.
  void add(int64_t root, int64_t elements);
  // Whatever came of it.
  void end() noexcept;

  // Waits for the roots; without any, for the moment from which an acquire lasts until the next
  // step. waiting() tells what the step waits for. Throws OTR_E_INTERRUPTED.
  enum class Step : uint8_t { goes_on, is_over };
  Step wait(std::span<const int64_t> roots, const char* call,
            const std::function<std::string()>& waiting);
  // The root is new by now.
  [[nodiscard]] bool has(int64_t root) const;

 private:
  [[nodiscard]] bool have(std::span<const int64_t> roots) const;

  enum class Phase : uint8_t { sums, updates, over };
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Phase phase_ = Phase::over;
  std::vector<int64_t> missing_;     // elements, by root
  std::span<const uint64_t> needs_;  // parts, by root
  std::function<uint64_t()> come_;
};

}  // namespace outrigger::engine
