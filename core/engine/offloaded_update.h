// SPDX-License-Identifier: Apache-2.0
// An update on the host of parameters on a device. While one part is updated, the part before goes
// up: from the master where it has the published format, else from one of a few slots that the
// update rounds to. Nothing waits for the last parts: who uses a parameter waits for its event.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/engine/devices.h"
#include "core/engine/published.h"
#include "core/engine/state_store.h"
#include "core/memory/block.h"
#include "core/memory/pinned.h"
#include "kernels/kernels.h"

namespace outrigger::engine {

class OffloadedUpdate {
 public:
  // So many elements of a root are updated, and on their way to the device.
  using Updated = std::function<void(int64_t root, int64_t elements)>;

  OffloadedUpdate(const Devices& devices, const Plan& plan, config::Pin pin, Published& published,
                  StateStore& states, Updated updated, memory::Ledger& ledger);

  // updates[i] is of pieces[i], in the order in which a forward needs their parameters.
  kernels::UpdateCount run(std::span<const kernels::Update> updates,
                           std::span<const layout::Piece> pieces);

 private:
  // What goes up together.
  struct Wave {
    std::vector<kernels::Update> updates;
    std::vector<void*> targets;  // in front
    std::vector<int64_t> roots;
    int64_t elements = 0;
  };
  void flush(Wave& wave, kernels::UpdateCount& total);
  void upload(const Wave& wave);

  const Devices& devices_;
  const Plan& plan_;
  Published& published_;
  StateStore& states_;
  const Updated updated_;
  const bool direct_;  // from the master
  memory::Block slots_;
  memory::Pinned pinned_;
  std::vector<device::Event> free_;  // of each slot: what was in it has gone up
  size_t next_ = 0;                  // slot
};

}  // namespace outrigger::engine
