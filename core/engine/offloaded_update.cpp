// SPDX-License-Identifier: Apache-2.0
#include "core/engine/offloaded_update.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/update_part.h"

namespace outrigger::engine {

using kernels::Format;

OffloadedUpdate::OffloadedUpdate(const Devices& devices, const Plan& plan, config::Pin pin,
                                 Published& published, StateStore& states, Updated updated,
                                 memory::Ledger& ledger)
    : devices_(devices),
      plan_(plan),
      published_(published),
      states_(states),
      updated_(std::move(updated)),
      direct_(plan.update_slots == 0),
      slots_(ledger, memory::Purpose::buckets, plan.update_staging),
      free_(static_cast<size_t>(plan.update_slots)) {
  if (!direct_) {
    pinned_ = memory::Pinned(*devices.front, ledger,
                             {slots_.data(), static_cast<size_t>(plan.update_staging)}, pin);
  }
}

kernels::UpdateCount OffloadedUpdate::run(std::span<const kernels::Update> updates,
                                          std::span<const layout::Piece> pieces) {
  kernels::UpdateCount total;
  Wave wave;
  for (size_t i = 0; i < updates.size(); ++i) {
    for (int64_t first = 0; first < updates[i].count;) {  // cut at leaves
      const int64_t room = plan_.update_elements - wave.elements;
      const int64_t count = std::min(updates[i].count - first, room);
      wave.updates.push_back(kernels::part_of(updates[i], first, count));
      wave.targets.push_back(wave.updates.back().published);
      wave.roots.push_back(pieces[i].parameter);
      wave.elements += kernels::in_leaves(count);
      first += count;
      if (wave.elements >= plan_.update_elements) flush(wave, total);
    }
  }
  if (!wave.updates.empty()) flush(wave, total);
  device::Device& front = *devices_.front;
  const device::Event all = front.record(front.upload_stream());
  front.wait(front.own_stream(), all);  // what goes there reads the new weights
  if (direct_) states_.note_reader(front, all);
  return total;
}

// What is adjacent on the device is adjacent in the slot.
void OffloadedUpdate::flush(Wave& wave, kernels::UpdateCount& total) {
  device::Device& front = *devices_.front;
  const Format format = published_.format();
  const size_t slot = next_;
  if (!direct_) {
    next_ = (next_ + 1) % free_.size();
    front.synchronize(std::exchange(free_[slot], {}));
    std::byte* const begin =
        slots_.data() + static_cast<int64_t>(slot) * bytes_of(plan_.update_elements, format);
    int64_t at = 0;
    for (kernels::Update& part : wave.updates) {
      const int64_t leaves = kernels::in_leaves(part.count);
      part.published = kernels::advance(begin, at, format);
      std::byte* const end = kernels::advance(begin, at + part.count, format);
      std::memset(end, 0, static_cast<size_t>(bytes_of(leaves - part.count, format)));
      at += leaves;
    }
  } else {
    for (kernels::Update& part : wave.updates) part.published = nullptr;
  }
  kernels::add(total, devices_.host->update(wave.updates));
  upload(wave);
  const device::Event gone = front.record(front.upload_stream());
  if (!direct_) free_[slot] = gone;
  for (size_t i = 0; i < wave.roots.size(); ++i) {
    published_.set_ready(wave.roots[i], gone);
    updated_(wave.roots[i], wave.updates[i].count);
  }
  wave = {};
}

void OffloadedUpdate::upload(const Wave& wave) {
  device::Device& front = *devices_.front;
  const Format format = published_.format();
  const auto source = [&](size_t i) {
    return static_cast<const std::byte*>(direct_ ? wave.updates[i].weight
                                                 : wave.updates[i].published);
  };
  for (size_t i = 0; i < wave.updates.size();) {
    size_t last = i;
    int64_t before = 0;  // bytes of i to last
    for (; last + 1 < wave.updates.size(); ++last) {
      const int64_t leaves = bytes_of(kernels::in_leaves(wave.updates[last].count), format);
      if (static_cast<std::byte*>(wave.targets[last]) + leaves != wave.targets[last + 1] ||
          source(last) + leaves != source(last + 1)) {
        break;
      }
      before += leaves;
    }
    const int64_t bytes = before + bytes_of(wave.updates[last].count, format);
    front.upload(wave.targets[i], source(i), static_cast<size_t>(bytes), front.upload_stream());
    i = last + 1;
  }
}

}  // namespace outrigger::engine
