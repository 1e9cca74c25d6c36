// SPDX-License-Identifier: Apache-2.0
#include "core/engine/gather.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;

void gather_pieces(comm::Group& group, device::Device& device,
                   const std::vector<layout::Layout::Owned>& owners, size_t element_bytes,
                   const std::function<const std::byte*(const layout::Piece&)>& piece_at,
                   std::byte* whole, std::string_view label, size_t& done) {
  std::vector<std::byte> bounce;  // of a device's memory, which ranks do not exchange directly
  for (; done < owners.size(); ++done) {
    const auto& [rank, piece] = owners[done];
    std::byte* part = whole + static_cast<size_t>(piece.first) * element_bytes;
    const size_t bytes = static_cast<size_t>(piece.count) * element_bytes;
    std::byte* on_host = part;
    if (!device.is_host()) {
      bounce.resize(bytes);
      on_host = bounce.data();
    }
    if (rank == group.rank()) device.download_now(on_host, piece_at(piece), bytes);
    group.broadcast({on_host, bytes}, rank, label);
    if (!device.is_host()) device.upload_now(part, on_host, bytes);
  }
}

Gather::Gather(const layout::Model& model, const layout::Layout& layout, const Storage& storage,
               comm::Group& group, std::unique_ptr<comm::Group> ahead, memory::Ledger& ledger,
               device::Device& device)
    : model_(&model),
      layout_(&layout),
      storage_(&storage),
      group_(&group),
      ledger_(&ledger),
      device_(&device),
      entries_(static_cast<size_t>(model.size())) {
  if (ahead == nullptr) return;
  prefetch_ = std::make_unique<Prefetch>(std::move(ahead), [this](auto& own, int64_t root) {
    size_t pieces = 0;
    gather(own, root, pieces);
  });
}

const std::byte* Gather::published(int64_t root) {
  const std::byte* whole = storage_->whole(root);
  const int64_t count = model_->at(root).count;
  if (whole != nullptr || count == 0) return whole;
  Entry& entry = make_room(root);
  if (entry.fetching) prefetch_->wait(root);
  if (!entry.fetching && !entry.whole) gather(*group_, root, entry.pieces);
  entry.fetching = false;
  entry.whole = true;
  return entry.gathered.data();
}

Gather::Entry& Gather::make_room(int64_t root) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  if (!entry.gathered) {
    const auto size = static_cast<int64_t>(kernels::size_of(storage_->compute()));
    entry.gathered = memory::ReleasableBlock(*ledger_, memory::Purpose::acquired,
                                             model_->at(root).count * size, device_);
  }
  entry.gathered.fill();
  return entry;
}

// What stays is the address.
void Gather::Entry::clear() noexcept {
  acquired = 0;
  gathered.drop();
  pieces = 0;
  whole = false;
  widened = {};
}

void Gather::gather(comm::Group& group, int64_t root, size_t& pieces) {
  const std::string label = "acquire \"" + model_->at(root).name + "\"";  // ranks must agree on it
  gather_pieces(
      group, *device_, layout_->owners(*model_, root), kernels::size_of(storage_->compute()),
      [this](const layout::Piece& piece) { return storage_->published(piece); },
      entries_[static_cast<size_t>(root)].gathered.data(), label, pieces);
}

otr_tensor Gather::tensor_of(int64_t id, bool as_float32) {
  const layout::Parameter& parameter = model_->at(id);
  const std::byte* whole = published(parameter.root);
  if (!as_float32 || storage_->compute() == Format::float32) {
    return tensor::make(const_cast<std::byte*>(whole), storage_->compute(), parameter.shape,
                        device_->id());
  }
  memory::Block& widened = entries_[static_cast<size_t>(parameter.root)].widened;
  if (!widened) {
    const int64_t bytes = model_->at(parameter.root).count * int64_t{4};
    widened = memory::Block(*ledger_, memory::Purpose::acquired, bytes, device_);
    widen(parameter.root);
  }
  return tensor::make(widened.data(), Format::float32, parameter.shape, device_->id());
}

void Gather::widen(int64_t root) {
  device_->convert(entries_[static_cast<size_t>(root)].widened.data(), Format::float32,
                   published(root), storage_->compute(), 1, model_->at(root).count,
                   device_->own_stream());
  device_->synchronize(device_->own_stream());
}

void Gather::acquire(const int64_t* ids, int64_t count, bool as_float32, otr_tensor* out) {
  for (int64_t i = 0; i < count; ++i) static_cast<void>(model_->at(ids[i]));
  if (!begun_.empty() && !std::equal(ids, ids + count, begun_.begin(), begun_.end())) {
    fail(OTR_E_STATE,
         "otr_engine_acquire was interrupted while it waited for other ranks, and is called with "
         "other ids: make it again with the same ones first");
  }
  try {
    for (int64_t i = 0; i < count; ++i) out[i] = tensor_of(ids[i], as_float32);
  } catch (const std::exception& failure) {
    std::fill_n(out, count, otr_tensor{});
    const auto* error = dynamic_cast<const Error*>(&failure);
    if (error != nullptr && error->status() == OTR_E_INTERRUPTED) {
      begun_.assign(ids, ids + count);
    } else {
      drop_unused(ids, count);
    }
    throw;
  }
  begun_.clear();
  for (int64_t i = 0; i < count; ++i) {
    ++entries_[static_cast<size_t>(model_->at(ids[i]).root)].acquired;
  }
}

// What was made for an acquire that failed.
void Gather::drop_unused(const int64_t* ids, int64_t count) {
  begun_.clear();
  for (int64_t i = 0; i < count; ++i) {
    Entry& entry = entries_[static_cast<size_t>(model_->at(ids[i]).root)];
    if (entry.acquired == 0 && !entry.fetching) entry.clear();
  }
}

void Gather::prefetch(const int64_t* ids, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    if (storage_->whole(root) != nullptr || model_->at(root).count == 0) continue;
    const Entry& known = entries_[static_cast<size_t>(root)];
    if (known.whole || known.fetching) continue;
    Entry& entry = make_room(root);
    prefetch_->begin(root);
    entry.fetching = true;
  }
}

void Gather::settle() {
  if (!prefetch_) return;
  prefetch_->wait_idle();
  for (Entry& entry : entries_) {
    if (entry.fetching) entry.whole = true;
    entry.fetching = false;
  }
}

void Gather::check() {
  if (prefetch_) prefetch_->check();
}

void Gather::give_up(int32_t culprit) noexcept {
  if (prefetch_) prefetch_->give_up(culprit);
}

void Gather::cancel() noexcept {
  if (prefetch_) prefetch_->cancel();
}

void Gather::release(const int64_t* ids, int64_t count) {
  std::unordered_map<int64_t, int64_t> wanted;  // by root
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    if (++wanted[root] > entries_[static_cast<size_t>(root)].acquired) {
      fail(OTR_E_STATE,
           "parameter \"{}\" (id {}) is not acquired: each release ends one acquire, and a "
           "step ends all",
           model_->at(ids[i]).name, ids[i]);
    }
  }
  for (const auto& [root, times] : wanted) {
    Entry& entry = entries_[static_cast<size_t>(root)];
    entry.acquired -= times;
    if (entry.acquired == 0) entry.clear();
  }
}

void Gather::refresh(int64_t root) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  if (entry.whole) {
    entry.pieces = 0;
    gather(*group_, root, entry.pieces);
  }
  if (entry.widened) widen(root);
}

void Gather::end_all() {
  for (Entry& entry : entries_) entry.clear();
  begun_.clear();
}

}  // namespace outrigger::engine
