// SPDX-License-Identifier: Apache-2.0
#include "core/engine/away.h"

#include <utility>

namespace outrigger::engine {

Away::Away(device::Device& device, memory::Ledger& ledger, config::Pin pin,
           std::vector<Movable> all)
    : device_(device) {
  items_.reserve(all.size());
  for (Movable& what : all) {
    Item& item = items_.emplace_back(Item{std::move(what), {}, {}});
    if (!item.what.is_kept) continue;
    item.copy = memory::Block(ledger, item.what.purpose, item.what.bytes);
    item.pinned = memory::Pinned(device, ledger,
                                 {item.copy.data(), static_cast<size_t>(item.what.bytes)}, pin);
  }
}

void Away::leave() {
  device_.drain();  // whatever stream the last work on it was given to
  const device::Stream stream = device_.download_stream();
  for (const Item& item : items_) {
    if (!item.what.is_kept) continue;
    device_.download(item.copy.data(), item.what.data(), static_cast<size_t>(item.what.bytes),
                     stream);
  }
  device_.synchronize(device_.record(stream));
  for (const Item& item : items_) item.what.drop();
}

void Away::take_room() {
  for (const Item& item : items_) item.what.restore();
}

void Away::give_up_room() noexcept {
  for (const Item& item : items_) item.what.drop();
}

void Away::come_back() {
  const device::Stream stream = device_.upload_stream();
  for (const Item& item : items_) {
    if (!item.what.is_kept) continue;
    device_.upload(item.what.data(), item.copy.data(), static_cast<size_t>(item.what.bytes),
                   stream);
  }
  device_.synchronize(device_.record(stream));
}

}  // namespace outrigger::engine
