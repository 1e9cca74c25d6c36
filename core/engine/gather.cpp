// SPDX-License-Identifier: Apache-2.0
#include "core/engine/gather.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/bits.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;

namespace {

// Bytes of parameters that are gathered together: small ones save waits. With more, ranks that
// share memory wait while an owner copies its own.
constexpr size_t kTogether = size_t{1} << 17;

// So much is gathered at a time: an interrupt between two of them loses nothing, and a device's
// memory goes by way of host memory of that size.
constexpr size_t kAtATime = size_t{4} << 20;

// A piece on its way to everybody.
struct Transfer {
  int32_t rank;
  std::byte* to;
  const std::byte* from;  // of this rank's
  size_t bytes;
};

// Takes the next off the list.
std::vector<Transfer> next_batch(std::span<Transfer>& left) {
  std::vector<Transfer> batch;
  for (size_t bytes = 0; !left.empty() && bytes < kAtATime;) {
    Transfer& first = left.front();
    batch.push_back(first);
    const size_t n = batch.back().bytes = std::min(first.bytes, kAtATime - bytes);
    bytes += n;
    first.to += n;
    first.bytes -= n;
    if (first.from != nullptr) first.from += n;
    if (first.bytes == 0) left = left.subspan(1);
  }
  return batch;
}

void gather_batch(comm::Group& group, device::Device& device, std::span<const Transfer> batch,
                  std::string_view label) {
  std::vector<std::byte> bounce(device.is_host() ? 0 : kAtATime);
  std::vector<comm::Part> parts;
  size_t at = 0;
  for (const Transfer& part : batch) {
    std::byte* const on_host = device.is_host() ? part.to : bounce.data() + at;
    if (part.from != nullptr) device.download_now(on_host, part.from, part.bytes);
    parts.push_back({part.rank, {on_host, part.bytes}});
    at += part.bytes;
  }
  group.all_gather_parts(parts, label);
  if (device.is_host()) return;
  for (size_t i = 0; i < batch.size(); ++i) {
    device.upload(batch[i].to, parts[i].bytes.data(), batch[i].bytes, device.own_stream());
  }
  device.synchronize(device.own_stream());
}

}  // namespace

void gather_pieces(comm::Group& group, device::Device& device, std::span<const Whole> wholes,
                   size_t element_bytes,
                   const std::function<const std::byte*(const layout::Piece&)>& piece_at,
                   std::string_view label, size_t& done) {
  std::vector<Transfer> transfers;
  for (const Whole& whole : wholes) {
    for (const auto& [rank, piece] : whole.owners) {
      transfers.push_back({rank, whole.data + static_cast<size_t>(piece.first) * element_bytes,
                           rank == group.rank() ? piece_at(piece) : nullptr,
                           static_cast<size_t>(piece.count) * element_bytes});
    }
  }
  std::span<Transfer> left(transfers);
  for (size_t operation = 0; !left.empty(); ++operation) {
    const std::vector<Transfer> batch = next_batch(left);
    if (operation < done) continue;
    gather_batch(group, device, batch, label);
    ++done;
  }
}

Gather::Gather(const layout::Model& model, const layout::Layout& layout, const Published& published,
               comm::Group& group, std::unique_ptr<comm::Group> ahead, memory::Ledger& ledger,
               device::Device& device)
    : model_(&model),
      layout_(&layout),
      published_(&published),
      group_(&group),
      ledger_(&ledger),
      device_(&device),
      entries_(static_cast<size_t>(model.size())) {
  if (ahead == nullptr) return;
  prefetch_ = std::make_unique<Prefetch>(std::move(ahead), [this](auto& own, const auto& roots) {
    size_t done = 0;
    gather(own, roots, done);
  });
}

const std::byte* Gather::value_of(int64_t root) const {
  const std::byte* whole = published_->whole(root);
  if (whole != nullptr || model_->at(root).count == 0) return whole;
  return entries_[static_cast<size_t>(root)].gathered.data();
}

std::vector<int64_t> Gather::missing(const int64_t* ids, int64_t count) const {
  std::vector<int64_t> roots;
  Bits known(model_->size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    const Entry& entry = entries_[static_cast<size_t>(root)];
    const bool here = published_->whole(root) != nullptr || model_->at(root).count == 0;
    if (here || entry.whole || entry.fetching || known[root]) continue;
    known.set(root);
    roots.push_back(root);
  }
  return roots;
}

void Gather::complete(const int64_t* ids, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    Entry& entry = entries_[static_cast<size_t>(root)];
    if (!entry.fetching) continue;
    prefetch_->wait(root);
    entry.fetching = false;
    entry.whole = true;
  }
  const std::vector<int64_t> roots = missing(ids, count);
  for (std::span<const int64_t> left(roots); !left.empty();) {
    const auto together = take_together(left);
    for (const int64_t root : together) make_room(root);
    gather(*group_, together, done_);
    done_ = 0;
    for (const int64_t root : together) entries_[static_cast<size_t>(root)].whole = true;
  }
}

// The next of these, of about kTogether bytes.
std::span<const int64_t> Gather::take_together(std::span<const int64_t>& left) const {
  const size_t size = kernels::size_of(published_->format());
  size_t n = 0;
  for (size_t bytes = 0; n < left.size() && bytes < kTogether; ++n) {
    bytes += static_cast<size_t>(model_->at(left[n]).count) * size;
  }
  const auto together = left.first(n);
  left = left.subspan(n);
  return together;
}

void Gather::make_room(int64_t root) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  if (!entry.gathered) {
    const auto size = static_cast<int64_t>(kernels::size_of(published_->format()));
    entry.gathered = memory::ReleasableBlock(*ledger_, memory::Purpose::acquired,
                                             model_->at(root).count * size, device_);
  }
  entry.gathered.fill();
}

// What stays is the address.
void Gather::Entry::clear() noexcept {
  acquired = 0;
  gathered.drop();
  whole = false;
  widened = {};
}

void Gather::gather(comm::Group& group, std::span<const int64_t> roots, size_t& done) {
  std::string label = "acquire";  // ranks compare the whole of it
  for (const int64_t root : roots) {
    label += format_text("{} \"{}\"", root == roots.front() ? "" : ",", model_->at(root).name);
  }
  std::vector<Whole> wholes;
  for (const int64_t root : roots) {
    wholes.push_back(
        {layout_->owners(*model_, root), entries_[static_cast<size_t>(root)].gathered.data()});
  }
  gather_pieces(
      group, *device_, wholes, kernels::size_of(published_->format()),
      [this](const layout::Piece& piece) { return published_->at(piece); }, label, done);
}

otr_tensor Gather::tensor_of(int64_t id, bool as_float32) {
  const layout::Parameter& parameter = model_->at(id);
  const std::byte* whole = value_of(parameter.root);
  if (!as_float32 || published_->format() == Format::float32) {
    return tensor::make(const_cast<std::byte*>(whole), published_->format(), parameter.shape,
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
                   value_of(root), published_->format(), 1, model_->at(root).count,
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
    complete(ids, count);
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
  done_ = 0;
  for (int64_t i = 0; i < count; ++i) {
    Entry& entry = entries_[static_cast<size_t>(model_->at(ids[i]).root)];
    if (entry.acquired == 0 && !entry.fetching) entry.clear();
  }
}

void Gather::prefetch(const int64_t* ids, int64_t count) {
  const std::vector<int64_t> roots = missing(ids, count);
  for (const int64_t root : roots) make_room(root);
  for (std::span<const int64_t> left(roots); !left.empty();) {
    const auto together = take_together(left);
    prefetch_->begin({together.begin(), together.end()});
    for (const int64_t root : together) entries_[static_cast<size_t>(root)].fetching = true;
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
    size_t done = 0;
    gather(*group_, std::span(&root, 1), done);
  }
  if (entry.widened) widen(root);
}

void Gather::end_all() {
  for (Entry& entry : entries_) entry.clear();
  begun_.clear();
  done_ = 0;
}

}  // namespace outrigger::engine
