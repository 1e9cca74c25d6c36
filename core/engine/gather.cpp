// SPDX-License-Identifier: Apache-2.0
#include "core/engine/gather.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/bits.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/engine/own_pieces.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;

namespace {

// Bytes of parameters that are gathered together: small ones save waits. With more, ranks that
// share memory wait while an owner copies its own.
constexpr size_t kTogether = size_t{1} << 17;

}  // namespace

Gather::Gather(const layout::Model& model, const Published& published, StateStore& states,
               comm::Group& group, std::unique_ptr<comm::Exchange> ahead, const Plan& plan,
               const config::EngineConfig& config, memory::Ledger& ledger, const Devices& devices)
    : model_(&model),
      published_(&published),
      group_(&group),
      ledger_(&ledger),
      device_(devices.front),
      shown_(devices.shown),
      pieces_(own_pieces(published, states, plan)),
      elements_{published.format(), config.quantised_weights ? devices.host : nullptr},
      entries_(static_cast<size_t>(model.size())),
      lingering_(config.live_elements),
      bounce_(*device_, ledger, config.pin, plan.gather_staging / 2),
      bounce_ahead_(*device_, ledger, config.pin, plan.gather_staging / 2),
      ahead_(*device_, bounce_ahead_, group.slice()),
      exchange_(std::move(ahead)) {}

const std::byte* Gather::value_of(int64_t root) const {
  if (is_shown(root)) return published_->whole(root);
  return entries_[static_cast<size_t>(root)].gathered.data();
}

Gather::Missing Gather::missing(std::span<const int64_t> ids) const {
  Missing roots;
  Bits known(model_->size());
  for (const int64_t id : ids) {
    const int64_t root = model_->at(id).root;
    const Entry& entry = entries_[static_cast<size_t>(root)];
    const bool here = is_shown(root) || model_->at(root).count == 0;
    if (here || entry.whole || entry.ahead != 0 || known[root]) continue;
    known.set(root);
    (is_uploaded(root) ? roots.offloaded : roots.in_pieces).push_back(root);
  }
  return roots;
}

void Gather::complete(const int64_t* ids, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    Entry& entry = entries_[static_cast<size_t>(root)];
    lingering_.take(root);  // in use from here on, so that nothing else takes its place
    if (entry.ahead == 0) continue;
    exchange_->wait(entry.ahead);
    note_fetched(entry);
  }
  const Missing roots = missing({ids, static_cast<size_t>(count)});
  for (const int64_t root : roots.offloaded) {
    while (!lingering_.has_room_for(model_->at(root).count) && drop_one()) {
    }
    make_room(root);
  }
  upload(roots.offloaded);
  for (const int64_t root : roots.offloaded) count_brought(root);
  for (std::span<const int64_t> left(roots.in_pieces); !left.empty();) {
    const auto together = take_together(left);
    for (const int64_t root : together) make_room(root);
    gather(together, done_);
    done_ = 0;
    const device::Event ready = device_->record(device_->upload_stream());
    for (const int64_t root : together) {
      note_whole(root, ready);
      count_brought(root);
    }
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

void Gather::note_fetched(Entry& entry) {
  entry.ahead = 0;
  entry.whole = true;
  entry.ready = device_->record(device_->upload_stream());
}

std::vector<Whole> Gather::wholes_of(std::span<const int64_t> roots) const {
  std::vector<Whole> wholes;
  for (const int64_t root : roots) {
    wholes.push_back({published_->layout().owners(*model_, root),
                      entries_[static_cast<size_t>(root)].gathered.data()});
  }
  return wholes;
}

std::string Gather::label_of(std::span<const int64_t> roots) const {
  std::string label = "acquire";
  for (const int64_t root : roots) {
    label += format_text("{} \"{}\"", root == roots.front() ? "" : ",", model_->at(root).name);
  }
  return label;
}

void Gather::gather(std::span<const int64_t> roots, size_t& done) {
  gather_pieces(*group_, *device_, bounce_, wholes_of(roots), elements_, pieces_, label_of(roots),
                done);
}

otr_tensor Gather::tensor_of(int64_t id, bool as_float32) const {
  const layout::Parameter& parameter = model_->at(id);
  const bool widened = as_float32 && published_->format() != Format::float32;
  std::byte* const data = widened ? entries_[static_cast<size_t>(parameter.root)].widened.data()
                                  : const_cast<std::byte*>(value_of(parameter.root));
  return tensor::make(data, widened ? Format::float32 : published_->format(), parameter.shape,
                      device_->id());
}

// Gives those that have none a float32 copy: all of them, or none.
void Gather::add_widened(const int64_t* ids, int64_t count) {
  const device::Stream stream = device_->own_stream();
  std::vector<Copy> fresh;
  std::vector<memory::Block> blocks;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    const auto is_this = [&](const Copy& copy) { return copy.root == root; };
    if (entries_[static_cast<size_t>(root)].widened || std::ranges::any_of(fresh, is_this))
      continue;
    const int64_t bytes = model_->at(root).count * int64_t{4};
    find_room([&] {
      blocks.emplace_back(*ledger_, memory::Purpose::acquired, bytes, device_, stream, shown_);
    });
    fresh.push_back({root, blocks.back().data()});
  }
  widen(fresh);
  for (size_t i = 0; i < fresh.size(); ++i) {
    entries_[static_cast<size_t>(fresh[i].root)].widened = std::move(blocks[i]);
  }
}

void Gather::widen(std::span<const Copy> copies) {
  const device::Stream stream = device_->own_stream();
  std::vector<device::Conversion> list;
  for (const Copy& copy : copies) {
    published_->await(copy.root, stream);
    device_->wait(stream, entries_[static_cast<size_t>(copy.root)].ready);
    list.push_back({copy.data, Format::float32, value_of(copy.root), published_->format(), 1,
                    model_->at(copy.root).count});
  }
  device_->convert_all(list, stream);
  const device::Event ready = device_->record(stream);
  for (const Copy& copy : copies) entries_[static_cast<size_t>(copy.root)].ready = ready;
}

void Gather::acquire(const int64_t* ids, int64_t count, bool as_float32, device::Stream stream,
                     otr_tensor* out) {
  for (int64_t i = 0; i < count; ++i) static_cast<void>(model_->at(ids[i]));
  if (!begun_.empty() && !std::equal(ids, ids + count, begun_.begin(), begun_.end())) {
    fail(OTR_E_STATE,
         "otr_engine_acquire was interrupted while it waited for other ranks, and is called with "
         "other ids: make it again with the same ones first");
  }
  try {
    complete(ids, count);
    if (as_float32 && published_->format() != Format::float32) add_widened(ids, count);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = tensor_of(ids[i], as_float32);
      const int64_t root = model_->at(ids[i]).root;
      published_->await(root, stream);
      device_->wait(stream, entries_[static_cast<size_t>(root)].ready);
    }
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

// What was made for an acquire that failed; an offloaded parameter that is there lingers.
void Gather::drop_unused(const int64_t* ids, int64_t count) {
  begun_.clear();
  done_ = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    const Entry& entry = entries_[static_cast<size_t>(root)];
    if (entry.acquired > 0 || entry.ahead != 0) continue;
    if (is_uploaded(root) && entry.whole) {
      lingering_.take(root);
      lingering_.add({root, entry.uses});
      continue;
    }
    device_->wait(device_->upload_stream(), entry.ready);
    drop(root, device_->upload_stream());
  }
}

void Gather::prefetch(std::span<const int64_t> ids) {
  Missing roots = missing(ids);
  std::erase_if(roots.offloaded, [&](int64_t root) {
    const int64_t elements = model_->at(root).count;
    const int64_t uses = entries_[static_cast<size_t>(root)].uses;
    while (!lingering_.has_room_for(elements) && drop_one(uses)) {
    }
    if (!lingering_.has_room_for(elements)) return true;
    try {
      make_room(root, uses);
    } catch (const Error& error) {  // an acquire makes more room, and is told
      if (error.status() != OTR_E_OUT_OF_MEMORY) throw;
      return true;
    }
    return false;
  });
  upload(roots.offloaded);
  for (const int64_t root : roots.offloaded) {
    lingering_.add({root, entries_[static_cast<size_t>(root)].uses});
  }
  for (const int64_t root : roots.in_pieces) make_room(root);
  for (std::span<const int64_t> left(roots.in_pieces); !left.empty();) {
    const auto together = take_together(left);
    const auto ticket =
        ahead_.begin(*exchange_, wholes_of(together), elements_, pieces_, label_of(together));
    for (const int64_t root : together) entries_[static_cast<size_t>(root)].ahead = ticket;
  }
}

void Gather::settle() {
  if (exchange_) {
    exchange_->wait_all();
    for (Entry& entry : entries_) {
      if (entry.ahead != 0) note_fetched(entry);
    }
  }
  if (!exchange_ && !published_->is_offloaded()) return;
  // Parts of this rank's own are still copied from where they are about to change: on the device,
  // or by the host.
  const device::Event copied = device_->record(device_->upload_stream());
  device_->wait(device_->own_stream(), copied);
  if (published_->is_offloaded()) device_->synchronize(copied);
}

}  // namespace outrigger::engine
