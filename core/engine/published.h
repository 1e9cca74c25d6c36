// SPDX-License-Identifier: Apache-2.0
// Every parameter in the compute dtype, as the host sees it, at the place that plan.h calls its
// home: in front, or, offloaded from a device, in host memory. A rank writes the pieces that it
// updates; publishing makes them everybody's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/comm/communicator.h"
#include "core/comm/direct.h"
#include "core/comm/exchange.h"
#include "core/config/config.h"
#include "core/engine/devices.h"
#include "core/engine/gather_pieces.h"
#include "core/engine/movable.h"
#include "core/engine/plan.h"
#include "core/engine/shared_marks.h"
#include "core/layout/layout.h"
#include "core/memory/block.h"
#include "core/memory/pinned.h"

namespace outrigger::engine {

class Published {
 public:
  // direct: what moves a device's memory, or null. replicas: of the ranks that have the same slice
  // of these and make a part of it each, or null. ahead: over which publishing goes beside other
  // work, or null. Collective.
  Published(comm::Communicator& comm, std::unique_ptr<comm::Group> replicas,
            std::unique_ptr<comm::Exchange> ahead, const layout::Model& model,
            const layout::Layout& states, const config::EngineConfig& config, const Plan& plan,
            const Devices& devices, const std::shared_ptr<comm::DirectRanks>& direct,
            memory::Ledger& ledger);
  ~Published();
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  [[nodiscard]] kernels::Format format() const { return format_; }
  // Whose memory they are in.
  [[nodiscard]] device::Device& device() const { return *device_; }
  // An acquire gathers a trainable parameter from other ranks.
  [[nodiscard]] bool is_in_pieces() const { return home_ == Home::slices && layout().world() > 1; }
  // An acquire brings them to the device.
  [[nodiscard]] bool is_offloaded() const { return device_ != front_; }
  // Which rank has what of them, where their home is slices.
  [[nodiscard]] const layout::Layout& layout() const { return coarser_ ? *coarser_ : states_; }
  // True if what each rank gives to others is what it keeps the states of.
  [[nodiscard]] bool is_cut_as_states() const {
    return replicates() || (home_ == Home::slices && !coarser_);
  }
  // True if this rank writes frozen parameters' values.
  [[nodiscard]] bool writes_frozen() const { return writes_frozen_; }
  // True if it has a copy of what other ranks update, too, to which their slices are gathered.
  [[nodiscard]] bool replicates() const { return home_ == Home::replica; }

  // True if what it shows of others' updates comes by publishing.
  [[nodiscard]] bool is_made_elsewhere() const { return replicates() || has_replicas(); }
  // True if others make parts of this rank's slices.
  [[nodiscard]] bool has_replicas() const { return replicas_ != nullptr; }

  // These two are memory of device(). A piece of this rank's:
  [[nodiscard]] std::byte* at(const layout::Piece& piece) const;
  // The parameter as a whole; null where this rank has a part of it only.
  [[nodiscard]] std::byte* whole(int64_t root) const;

  // What brings a parameter's new value to the device is done after this event.
  // Uploads of a plan that uploads updates; of a root, by one thread at a time.
  void set_ready(int64_t root, device::Event event) {
    ready_[static_cast<size_t>(root)] = std::move(event);
  }
  // Work that comes after in this stream sees the root's last value.
  void await(int64_t root, device::Stream stream) const {
    if (!ready_.empty()) front_->wait(stream, ready_[static_cast<size_t>(root)]);
  }

  // A device's memory of them, if they are there.
  void list_movable(std::vector<Movable>& all, memory::Ledger& ledger);

  // Makes what this rank wrote into its pieces everybody's, of all parameters. Collective.
  // Bytes that ranks exchanged for it.
  int64_t publish();
  // The same of these roots, where that takes more than writing them; after a barrier all have it.
  void publish(std::span<const int64_t> roots) const;

  // Null where ranks do not share them, or where replicas still have to gather parts.
  [[nodiscard]] SharedMarks* marks() { return marks_ ? &*marks_ : nullptr; }

  // A bucket at a time, beside the updates of others.
  [[nodiscard]] bool goes_ahead() const { return exchange_ != nullptr; }
  // This rank has written its slice. All ranks begin the same ones in the same order. mine: where
  // its pieces are to be had, outlives the exchange. then: all of the bucket is there, on a device
  // as await has it; on another thread.
  void begin(const layout::Bucket& bucket, const Pieces& mine, std::function<void()> then);
  void wait_all();
  // Drops what has not begun; nothing runs any more.
  void stop() noexcept {
    if (exchange_) exchange_->stop();
  }

  // Of publishing: no other rank waits for this one any more; no wait here lasts. Any thread.
  void give_up(int32_t culprit) const noexcept;
  void abort(std::string_view reason) const noexcept;
  void cancel() const noexcept;

 private:
  void begin_pieces(const layout::Bucket& bucket, const Pieces& mine, std::function<void()> then);
  // Gathers parts of this rank's slices, whose pieces have their place in the memory as `shard`.
  void gather_parts(std::span<const Whole> wholes) const;
  [[nodiscard]] int64_t place_of(const layout::Piece& piece) const;

  const layout::Model& model_;
  const layout::Layout& states_;
  std::optional<layout::Layout> coarser_;  // than that of the states, where it is another one
  const int32_t slice_;                    // of layout()
  device::Device *front_, *device_;
  memory::Shown* shown_;  // null: no caller sees this memory
  std::unique_ptr<comm::Group> replicas_;
  kernels::Format format_;
  Home home_;
  bool writes_frozen_;
  comm::Communicator* comm_;                       // whose window the next one is
  std::unique_ptr<comm::Communicator> on_device_;  // where that is a device's
  std::shared_ptr<comm::Window> window_;           // shared, or a replica
  memory::Charge window_charge_, staging_charge_;
  memory::PageNote window_note_;
  std::optional<SharedMarks> marks_;
  memory::Block private_;  // a copy, or slices and frozen parameters
  memory::Pinned pinned_;  // of the host's, copied to a device
  std::byte* data_ = nullptr;
  std::vector<device::Event> ready_;  // by root, where the host updates for the device
  const Pieces shown_pieces_;         // this rank's, where they are published
  std::optional<Bounce> bounce_;      // of a replica that goes in pieces
  std::optional<PiecesAhead> pieces_ahead_;
  std::unique_ptr<comm::Exchange> exchange_;  // of a replica; ends first
};

}  // namespace outrigger::engine
