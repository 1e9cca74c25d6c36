// SPDX-License-Identifier: Apache-2.0
// Parameters for the host. Where this rank has the whole published parameter, acquiring it is a
// pointer, or, offloaded from a device, a copy that goes there; at stage 3 of ranks that share no
// memory it is gathered from its owners, which all ranks do in the same order, ahead of it or then.
// Gathered parameters and float32 copies live until their release, copies of offloaded ones after
// it, too, as long as there is room for them (Lingering). What an interrupted acquire has gathered
// stays for the same call made again, which all ranks then go on with alike.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/gather_pieces.h"
#include "core/engine/lingering.h"
#include "core/engine/published.h"
#include "core/engine/state_store.h"
#include "core/layout/model.h"
#include "core/memory/releasable_block.h"
#include "outrigger.h"

namespace outrigger::engine {

class Gather {
 public:
  // group: of the ranks that have the published slices. ahead: the sequence of what is prefetched;
  // null where nothing is gathered. states: in host memory, where it need not come from the device.
  Gather(const layout::Model& model, const Published& published, StateStore& states,
         comm::Group& group, std::unique_ptr<comm::Exchange> ahead, const Plan& plan,
         const config::EngineConfig& config, memory::Ledger& ledger, const Devices& devices);

  // Both: all or none of the ids. Tensors refer to the model's shapes, and are valid in the order
  // of the stream. An interrupted acquire is called again with the same ids; with others it throws
  // OTR_E_STATE.
  void acquire(const int64_t* ids, int64_t count, bool as_float32, device::Stream stream,
               otr_tensor* out);
  // What is not acquired any more is freed after what was given to the stream, now or later.
  void release(const int64_t* ids, int64_t count, device::Stream stream);
  // Bytes of values that acquires have brought since the last call.
  [[nodiscard]] int64_t take_brought() { return std::exchange(brought_, 0); }
  void require_none_acquired(const char* call) const;
  // Begins to bring what is not there, for a later acquire.
  void prefetch(std::span<const int64_t> ids);
  // Waits for all that was prefetched, and reads published parameters no more; throws as an
  // acquire.
  void settle();
  // Throws the failure of a prefetch. Any thread.
  void check() {
    if (exchange_) exchange_->check();
  }
  // Of the prefetched: no other rank waits for it here any more; no wait here lasts.
  void give_up(int32_t culprit) noexcept {
    if (exchange_) exchange_->give_up(culprit);
  }
  void cancel() noexcept {
    if (exchange_) exchange_->cancel();
  }
  // The root's published value was written: float32 copies of it follow.
  void refresh(int64_t root);
  // The same after this rank wrote its part, alone: what it has gathered of others stays as it is.
  void note_written(int64_t root) {
    if (is_uploaded(root)) refresh(root);
  }
  // The published parameters are about to change: every acquire ends. After settle.
  void end_all();

 private:
  struct Entry {
    int64_t acquired = 0;
    int64_t uses = 0;  // that ended since the last step
    // In the compute dtype, where what is published is not shown as it is.
    memory::ReleasableBlock gathered;
    bool whole = false;                // all of it is there …
    device::Event ready;               // … after this
    device::Event used;                // nothing reads it after this, if it is not acquired again
    comm::Exchange::Ticket ahead = 0;  // prefetched, and not waited for yet; 0: it is not
    memory::Block widened;             // float32
    // after: the stream of the last use.
    void clear(device::Stream after) noexcept;
  };
  // The roots of these that are not there, each once: whole in host memory, and in pieces.
  struct Missing {
    std::vector<int64_t> offloaded, in_pieces;
  };
  [[nodiscard]] Missing missing(std::span<const int64_t> ids) const;
  // True if acquiring the root is a pointer.
  [[nodiscard]] bool is_shown(int64_t root) const {
    return !published_->is_offloaded() && published_->whole(root) != nullptr;
  }
  // True if it is a copy from this host's memory, whatever other ranks do.
  [[nodiscard]] bool is_uploaded(int64_t root) const {
    return published_->is_offloaded() && published_->whole(root) != nullptr;
  }
  // Uploads all of these into memory that has room for them.
  void upload(std::span<const int64_t> roots);
  // Ends what is there of the root.
  void drop(int64_t root, device::Stream after);
  // Drops a copy that lingers and was used more often than this; false if there is none.
  bool drop_one(int64_t uses = -1);
  [[nodiscard]] std::span<const int64_t> take_together(std::span<const int64_t>& left) const;
  // Makes all of them whole.
  void complete(const int64_t* ids, int64_t count);
  // The whole parameter as published, after that.
  [[nodiscard]] const std::byte* value_of(int64_t root) const;
  void drop_unused(const int64_t* ids, int64_t count);
  // Where memory ends, what only lingers and was used more often than this makes room.
  void find_room(const std::function<void()>& allocate, int64_t uses = -1);
  void make_room(int64_t root, int64_t uses = -1);
  void note_whole(int64_t root, const device::Event& ready) {
    Entry& entry = entries_[static_cast<size_t>(root)];
    entry.whole = true;
    entry.ready = ready;
  }
  void count_brought(int64_t root) {
    const int64_t count = model_->at(root).count;
    brought_ +=
        is_uploaded(root) ? bytes_of(count, published_->format()) : elements_.bytes_sent(count);
  }
  // What was fetched ahead has come.
  void note_fetched(Entry& entry);
  [[nodiscard]] std::vector<Whole> wholes_of(std::span<const int64_t> roots) const;
  [[nodiscard]] std::string label_of(std::span<const int64_t> roots) const;
  void gather(std::span<const int64_t> roots, size_t& done);
  // A root's float32 copy.
  struct Copy {
    int64_t root;
    std::byte* data;
  };
  void add_widened(const int64_t* ids, int64_t count);
  void widen(std::span<const Copy> copies);
  [[nodiscard]] otr_tensor tensor_of(int64_t id, bool as_float32) const;

  const layout::Model* model_;
  const Published* published_;
  comm::Group* group_;
  memory::Ledger* ledger_;
  device::Device* device_;
  memory::Shown* shown_;
  Pieces pieces_;               // among the published
  Elements elements_;           // … on their way to other ranks
  std::vector<Entry> entries_;  // by root
  Lingering lingering_;         // of what was uploaded
  std::vector<int64_t> begun_;  // ids of the acquire that was interrupted
  size_t done_ = 0;             // operations of it that are over
  int64_t brought_ = 0;         // bytes
  Bounce bounce_, bounce_ahead_;
  PiecesAhead ahead_;
  std::unique_ptr<comm::Exchange> exchange_;  // of prefetches; ends first
};

}  // namespace outrigger::engine
