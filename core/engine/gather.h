// SPDX-License-Identifier: Apache-2.0
// Parameters for the host. Where this rank has the whole published parameter, acquiring it is a
// pointer; at stage 3 of ranks that share no memory it is gathered from its owners, which all ranks
// do in the same order, ahead of it or then. Gathered parameters and float32 copies live until
// their release. What an interrupted acquire has gathered stays for the same call made again, which
// all ranks then go on with alike.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "core/engine/prefetch.h"
#include "core/engine/storage.h"
#include "core/layout/model.h"
#include "core/memory/releasable_block.h"
#include "outrigger.h"

namespace outrigger::engine {

// A whole parameter of `element_bytes` an element, from its owners' pieces, all on `device`. done:
// how many owners' pieces are there; called again after an interrupt, it goes on with the next.
// Collective.
void gather_pieces(comm::Group& group, device::Device& device,
                   const std::vector<layout::Layout::Owned>& owners, size_t element_bytes,
                   const std::function<const std::byte*(const layout::Piece&)>& piece_at,
                   std::byte* whole, std::string_view label, size_t& done);

class Gather {
 public:
  // ahead: for prefetch; null where nothing is gathered.
  Gather(const layout::Model& model, const layout::Layout& layout, const Storage& storage,
         comm::Group& group, std::unique_ptr<comm::Group> ahead, memory::Ledger& ledger,
         device::Device& device);

  // Both: all or none of the ids. Tensors refer to the model's shapes. An interrupted acquire is
  // called again with the same ids; with others it throws OTR_E_STATE.
  void acquire(const int64_t* ids, int64_t count, bool as_float32, otr_tensor* out);
  void release(const int64_t* ids, int64_t count);
  // Begins to gather what is not there, for a later acquire.
  void prefetch(const int64_t* ids, int64_t count);
  // Waits for all that was prefetched, throws as an acquire.
  void settle();
  // Throws the failure of a prefetch. Any thread.
  void check();
  // Of the prefetched: no other rank waits for it here any more; no wait here lasts.
  void give_up(int32_t culprit) noexcept;
  void cancel() noexcept;
  // The root's published value was written: float32 copies of it follow.
  void refresh(int64_t root);
  // The published parameters are about to change: every acquire ends. After settle.
  void end_all();

 private:
  struct Entry {
    int64_t acquired = 0;
    memory::ReleasableBlock gathered;  // compute dtype, where this rank has a part only
    size_t pieces = 0;                 // owners whose part of it is there
    bool whole = false;                // all are
    bool fetching = false;             // prefetched, and not waited for yet
    memory::Block widened;             // float32
    void clear() noexcept;
  };
  // The whole parameter as published, gathered if need be.
  [[nodiscard]] const std::byte* published(int64_t root);
  void drop_unused(const int64_t* ids, int64_t count);
  [[nodiscard]] Entry& make_room(int64_t root);
  void gather(comm::Group& group, int64_t root, size_t& pieces);
  void widen(int64_t root);
  [[nodiscard]] otr_tensor tensor_of(int64_t id, bool as_float32);

  const layout::Model* model_;
  const layout::Layout* layout_;
  const Storage* storage_;
  comm::Group* group_;
  memory::Ledger* ledger_;
  device::Device* device_;
  std::vector<Entry> entries_;          // by root
  std::vector<int64_t> begun_;          // ids of the acquire that was interrupted
  std::unique_ptr<Prefetch> prefetch_;  // ends first
};

}  // namespace outrigger::engine
