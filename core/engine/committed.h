// SPDX-License-Identifier: Apache-2.0
// What commit makes of the declarations on this rank: where everything lies, and the memory of
// parameters and states. Nothing here changes until the end but the values.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/direct.h"
#include "core/device/host.h"
#include "core/engine/declared.h"
#include "core/engine/devices.h"
#include "core/engine/gather.h"
#include "core/engine/plan.h"
#include "core/engine/published.h"
#include "core/engine/state_store.h"
#include "core/layout/layout.h"
#include "core/threads/workers.h"

namespace outrigger::engine {

struct Committed {
  // Collective. given: duplicated for the work of other threads. own: for the calls of the host;
  // outlives this.
  Committed(Declared& declared, comm::Communicator& given, comm::Communicator& own,
            MakeStore make_store);

  // Of ranks that keep the same states, the first counts them.
  const bool counts;
  // Of ranks, whose sums are made first.
  [[nodiscard]] int32_t groups() const { return control.groups(); }
  // Not sharded: every rank updates everything.
  [[nodiscard]] bool sharded() const { return plan.home != Home::copy; }
  // Where a trainable root's sum, master and moments are.
  [[nodiscard]] device::Device& back_of(int64_t root) const {
    return devices.of(plan.side_of(root).back);
  }
  // Where all states are, unless a part of them is offloaded.
  [[nodiscard]] device::Device& undivided_back() const {
    return devices.of(plan.sides.back().back);
  }
  // This rank's part of a root's masters and states. A parameter lies in one bucket, of which each
  // rank has one slice: so one piece at most is here.
  [[nodiscard]] std::optional<layout::Piece> local_piece(int64_t root) const;

  // Of all that moves parameters: no other rank waits for this one any more; no wait here lasts.
  void give_up(int32_t culprit) noexcept;
  // Ends the ranks' waits in it, where that does not come with the control's: any thread.
  void abort(std::string_view reason) const noexcept;
  void cancel() noexcept;

  const layout::Model& model;
  comm::Communicator& control;
  Workers workers;
  device::Host host;
  Devices devices;
  const std::shared_ptr<comm::DirectRanks> direct;  // null: ranks exchange by way of the host
  layout::Layout layout;
  Plan plan;
  const std::vector<layout::Piece> pieces;    // what this rank updates
  comm::Communicator::Publishing publishing;  // its replicas go to `published`
  Published published;
  std::unique_ptr<StateStore> states;
  Gather gather;
};

// These three are collective, and throw on all ranks where one of them has to refuse.
// Every rank has declared the same.
void compare_declarations(const Declared& declared, comm::Group& group);
// What all ranks of the host will touch is free: after all of the plan is allocated.
void require_memory(Declared& declared, const Committed& committed);

[[noreturn]] void refuse_differing(const layout::Model& model, int64_t id, int32_t rank);

}  // namespace outrigger::engine
