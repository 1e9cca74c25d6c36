// SPDX-License-Identifier: Apache-2.0
// The reducers of a configuration, one for each side of the plan: their order, and how sums come to
// a device.
#pragma once

#include <memory>
#include <vector>

#include "core/engine/reduce.h"

namespace outrigger::engine {

class Reducers {
 public:
  // context: its side is not read. Collective. The communicator is the reducers' own.
  Reducers(const ReduceContext& context, const Plan& plan,
           std::unique_ptr<comm::Communicator> comm);

  // As a Reducer's, of all sides.
  [[nodiscard]] std::unique_ptr<GradientSink> begin_pass();
  [[nodiscard]] Summed finish();
  [[nodiscard]] std::byte* gradient(const layout::Piece& piece) const {
    return of(piece.parameter).gradient(piece);
  }
  [[nodiscard]] kernels::NormSum norm() const;
  void clear();
  void check();
  void wait_idle();
  void give_up(int32_t culprit) noexcept;
  void stop() noexcept;
  void list_movable(std::vector<Movable>& all);
  [[nodiscard]] bool is_present(int64_t root) const { return of(root).is_present(root); }
  void mark_present(int64_t root) { of(root).mark_present(root); }

 private:
  class Sink;
  [[nodiscard]] Reducer& of(int64_t root) const {
    return *all_[static_cast<size_t>(&plan_.side_of(root) - plan_.sides.data())];
  }
  const Plan& plan_;
  std::vector<std::unique_ptr<Reducer>> all_;  // by side
};

}  // namespace outrigger::engine
