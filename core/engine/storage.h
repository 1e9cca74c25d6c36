// SPDX-License-Identifier: Apache-2.0
// The memory of parameters and states on this rank.
//
// published: every parameter in the compute dtype, at the place that plan.h calls its home.
// master: the weight that the optimizer updates. Where its format is the compute dtype and its
// place the parameters', the published slice *is* the master and costs nothing. A split master's
// other half is the published slice.
// states: exp_avg and exp_avg_sq of the owned pieces.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/communicator.h"
#include "core/config/config.h"
#include "core/device/device.h"
#include "core/engine/plan.h"
#include "core/layout/layout.h"
#include "core/memory/block.h"

namespace outrigger::engine {

// Where an engine's work is done: `front` has the parameters and meets the host's tensors, `back`
// has accumulators, master and moments. Without offload they are the same object.
struct Devices {
  device::Device* front;
  device::Device* back;
  [[nodiscard]] bool offloaded() const { return front != back; }
};

class Storage {
 public:
  // Collective. The plan outlives this.
  Storage(comm::Communicator& comm, const layout::Model& model, const layout::Layout& layout,
          const config::EngineConfig& config, const Plan& plan, const Devices& devices,
          memory::Ledger& ledger);

  [[nodiscard]] kernels::Format compute() const { return compute_; }
  [[nodiscard]] kernels::Format master_format() const { return master_format_; }
  [[nodiscard]] kernels::Format exp_avg_format() const { return exp_avg_format_; }
  [[nodiscard]] kernels::Format exp_avg_sq_format() const { return exp_avg_sq_format_; }

  // What this rank updates; at stage 0 everything.
  [[nodiscard]] const std::vector<layout::Piece>& pieces() const { return pieces_; }
  [[nodiscard]] bool sharded() const { return home_ != Home::copy; }
  // True if this rank writes frozen parameters' published values.
  [[nodiscard]] bool writes_frozen() const { return writes_frozen_; }
  // True if it has a copy of what other ranks update, too, to which their slices are gathered.
  [[nodiscard]] bool replicates() const { return home_ == Home::replica; }

  // A piece of this rank's, in front.
  [[nodiscard]] std::byte* published(const layout::Piece& piece) const;
  // The parameter as a whole, in front; null where this rank has a part of it only.
  [[nodiscard]] std::byte* whole(int64_t root) const;
  // Makes what this rank wrote into its pieces everybody's. Collective.
  void publish() const;
  // Of publishing: no other rank waits for this one any more; no wait here lasts. Any thread.
  void give_up(int32_t culprit) const noexcept;
  void cancel() const noexcept;
  // These three are in the back.
  [[nodiscard]] std::byte* master(const layout::Piece& piece) const;
  [[nodiscard]] std::byte* exp_avg(const layout::Piece& piece) const;
  [[nodiscard]] std::byte* exp_avg_sq(const layout::Piece& piece) const;
  [[nodiscard]] bool has_separate_master() const { return separate_master_; }

 private:
  const layout::Layout& layout_;
  kernels::Format compute_, master_format_, exp_avg_format_, exp_avg_sq_format_;
  Home home_;
  bool separate_master_;
  bool writes_frozen_;
  std::vector<layout::Piece> pieces_;
  const std::vector<int64_t>& second_moments_;  // the plan's
  comm::Communicator* comm_;                    // whose window the next one is
  std::unique_ptr<comm::Communicator> staged_;  // where that is a device's
  std::shared_ptr<comm::Window> window_;        // published: shared, or a replica
  memory::Charge window_charge_, staging_charge_;
  memory::Block private_published_;  // a copy, or slices and frozen parameters
  std::byte* published_ = nullptr;
  memory::Block master_, exp_avg_, exp_avg_sq_;
};

}  // namespace outrigger::engine
