// SPDX-License-Identifier: Apache-2.0
// The memory of what is acquired: when it comes, what it shows, and when it goes.
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/engine/gather.h"

namespace outrigger::engine {

void Gather::find_room(const std::function<void()>& allocate, int64_t uses) {
  for (;;) {
    try {
      return allocate();
    } catch (const Error& error) {
      if (error.status() != OTR_E_OUT_OF_MEMORY || !drop_one(uses)) throw;
    }
  }
}

void Gather::make_room(int64_t root, int64_t uses) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  if (!entry.gathered) {
    const auto size = static_cast<int64_t>(kernels::size_of(published_->format()));
    entry.gathered = memory::ReleasableBlock(*ledger_, memory::Purpose::acquired,
                                             model_->at(root).count * size, device_, shown_);
  }
  if (entry.gathered.filled()) return;
  find_room([&] { entry.gathered.fill(); }, uses);
  if (is_uploaded(root)) lingering_.count(model_->at(root).count);
}

void Gather::upload(std::span<const int64_t> roots) {
  if (roots.empty()) return;
  const device::Stream stream = device_->upload_stream();
  for (const int64_t root : roots) {
    const int64_t bytes = bytes_of(model_->at(root).count, published_->format());
    device_->upload(entries_[static_cast<size_t>(root)].gathered.data(), published_->whole(root),
                    static_cast<size_t>(bytes), stream);
  }
  const device::Event ready = device_->record(stream);
  for (const int64_t root : roots) note_whole(root, ready);
}

void Gather::drop(int64_t root, device::Stream after) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  lingering_.take(root);
  device_->wait(after, entry.used);
  if (entry.gathered.filled() && is_uploaded(root)) lingering_.count(-model_->at(root).count);
  entry.clear(after);
}

bool Gather::drop_one(int64_t uses) {
  const std::optional<int64_t> root = lingering_.first_to_go(uses);
  if (root) drop(*root, device_->upload_stream());
  return root.has_value();
}

// What stays is the address.
void Gather::Entry::clear(device::Stream after) noexcept {
  acquired = 0;
  gathered.free_after(after);
  gathered.drop();
  whole = false;
  ready = used = {};
  widened.free_after(after);
  widened = {};
}

void Gather::release(const int64_t* ids, int64_t count, device::Stream stream) {
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
  for (int64_t i = 0; i < count; ++i) {
    const int64_t root = model_->at(ids[i]).root;
    const int64_t times = std::exchange(wanted[root], 0);
    Entry& entry = entries_[static_cast<size_t>(root)];
    entry.acquired -= times;
    if (times == 0 || entry.acquired > 0) continue;
    ++entry.uses;
    if (!is_uploaded(root) || !entry.whole || !lingering_.has_room_for(0)) {
      drop(root, stream);
      continue;
    }
    entry.widened.free_after(stream);
    entry.widened = {};
    entry.used = device_->record(stream);
    lingering_.add({root, entry.uses});
  }
}

void Gather::require_none_acquired(const char* call) const {
  for (size_t root = 0; root < entries_.size(); ++root) {
    if (entries_[root].acquired == 0) continue;
    fail(OTR_E_STATE, "{}: parameter \"{}\" is acquired: call otr_engine_release first", call,
         model_->at(static_cast<int64_t>(root)).name);
  }
}

void Gather::refresh(int64_t root) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  if (entry.acquired == 0 && is_uploaded(root)) return drop(root, device_->upload_stream());
  if (entry.whole && is_uploaded(root)) {
    upload(std::span(&root, 1));
  } else if (entry.whole) {
    size_t done = 0;
    gather(std::span(&root, 1), done);
    entry.ready = device_->record(device_->upload_stream());
  }
  const Copy copy{root, entry.widened.data()};
  if (entry.widened) widen(std::span(&copy, 1));
  // Streams that have waited for the old values wait for nothing any more.
  if (entry.whole || entry.widened) device_->synchronize(entry.ready);
}

void Gather::end_all() {
  lingering_.clear();
  for (size_t root = 0; root < entries_.size(); ++root) {
    drop(static_cast<int64_t>(root), device_->own_stream());
    entries_[root].uses = 0;
  }
  begun_.clear();
  done_ = 0;
}

}  // namespace outrigger::engine
