// SPDX-License-Identifier: Apache-2.0
// Phase 2 of a step: one fused pass over the owned pieces (unscale, clip, decay, update, round,
// publish), then the moment from which the new parameters are everybody's.
//
// States are leased from the store piece by piece, as far as it has room for; while some are
// updated, it fetches the next and keeps the last.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/committed.h"
#include "core/engine/matrices.h"
#include "core/engine/new_weights.h"
#include "core/engine/offloaded_update.h"
#include "core/engine/publish_ahead.h"
#include "core/engine/window.h"
#include "core/optimizer/rule.h"

namespace outrigger::engine {

class Updater {
 public:
  // new_weights: is told of them while they come.
  Updater(Declared& declared, Committed& committed, Run& run, const Window& window,
          NewWeights& new_weights);

  // By a decision that does not skip. Collective for LAMB and Muon. What this rank has done.
  kernels::UpdateCount update(const Decision& decision);
  // By a decision that the device makes, which may skip; waits for nothing.
  void update_there(const Decision& decision, DeviceDecision& there);
  // The roots that a decision updates unless it skips, and that it has not.
  [[nodiscard]] std::vector<int64_t> updated_by(const Decision& decision) const;
  void count_updates(std::span<const int64_t> roots);
  // From here on an acquire shows the new parameters: every rank has written its pieces. Of all
  // ranks. Collective.
  kernels::UpdateCount publish(const kernels::UpdateCount& mine);

 private:
  // For who waits for them, here or on another rank.
  void note_updated(int64_t root, int64_t elements);
  // Pieces whose states are leased, each with its update.
  struct Visited {
    std::span<kernels::Update> updates;
    std::span<const layout::Piece> pieces;
  };
  using Visit = std::function<void(const Visited&)>;
  // What a visit reads and writes of the states.
  struct Access {
    StateSet read = kAllStates, written = kAllStates;
  };
  void visit(std::span<const layout::Piece> pieces, const Access& access,
             optimizer::StepScalars& scalars, const Visit& body);
  [[nodiscard]] kernels::Update update_of(const layout::Piece& piece,
                                          const StateStore::Leased& states,
                                          optimizer::StepScalars& scalars) const;
  // Those of these, in their order the first, whose states a device has.
  [[nodiscard]] size_t count_on_device(std::span<const layout::Piece> pieces) const;
  // updates[i] is of pieces[i]; those of the plan's first side come first. The device's run beside
  // the host's.
  [[nodiscard]] kernels::UpdateCount run(std::span<const kernels::Update> updates,
                                         std::span<const layout::Piece> pieces);
  [[nodiscard]] kernels::UpdateCount run_here(std::span<const kernels::Update> updates,
                                              std::span<const layout::Piece> pieces);
  [[nodiscard]] kernels::UpdateCount update_layers(std::span<const layout::Piece> pieces,
                                                   optimizer::StepScalars& scalars);
  [[nodiscard]] kernels::UpdateCount update_matrices(std::span<const layout::Piece> pieces,
                                                     const Decision& decision,
                                                     optimizer::StepScalars& scalars);

  [[nodiscard]] std::vector<layout::Piece> pieces_of(const Decision& decision) const;

  Declared& declared_;
  Committed& committed_;
  Run& run_;
  const Window& window_;
  NewWeights& new_weights_;
  std::vector<kernels::RandomStream> random_;        // by root
  std::vector<std::unique_ptr<Matrices>> matrices_;  // of Muon: by the plan's side, or null
  std::unique_ptr<PublishAhead> ahead_;              // where it goes beside updates
  std::unique_ptr<OffloadedUpdate> offloaded_;
};

}  // namespace outrigger::engine
