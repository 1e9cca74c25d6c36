// SPDX-License-Identifier: Apache-2.0
// What a checkpoint had, to where this rank keeps it.
#include <array>
#include <vector>

#include "core/checkpoint/planes.h"
#include "core/engine/transfer.h"
#include "core/engine/values.h"
#include "kernels/composed.h"

namespace outrigger::engine {

using checkpoint::Kept;
using kernels::Format;

namespace {

constexpr std::array<int32_t, checkpoint::kKept> kValues{OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG,
                                                         OTR_VALUE_EXP_AVG_SQ, OTR_VALUE_PUBLISHED};

}  // namespace

void Values::restore(const layout::Piece& part, Kept kept, Format format,
                     std::span<const std::vector<std::byte>> planes) {
  checkpoint::OwnRun composed;
  if (kernels::is_composed(format)) composed.fill(format, planes, part.count);
  const std::span<const std::byte> data = kernels::is_composed(format) ? composed.data : planes[0];
  const auto values = [&] {
    std::vector<float> floats(static_cast<size_t>(part.count));
    kernels::read_float32(floats.data(), data.data(), composed.beside.data(), format, part.count);
    return floats;
  };
  const int32_t value = kValues.at(static_cast<size_t>(kept));
  touch(part.parameter, kept == Kept::published ? OTR_VALUE_MASTER : value);
  const layout::Parameter& root = declared_.model.at(part.parameter);
  if (kept == Kept::published) {
    store_published(part.parameter, part.first, part.count, values().data());
    return;
  }
  const bool weight = kept == Kept::master;
  if (weight) window_.note_written();
  const Location location = location_of(root, value, true);
  if (location.format != format) {
    const std::vector<float> floats = values();
    if (weight) {
      write_weight(part, floats.data());
    } else {
      write_piece(location, part, floats.data());
    }
    return;
  }
  // As it was: 8-bit blocks do not come back from float32 with the same scale.
  location.device->upload_now(location.at(part.first), data.data(), data.size());
  if (kernels::is_composed(format)) {
    location.beside_device->upload_now(location.beside_at(part.first), composed.beside.data(),
                                       composed.beside.size());
  } else if (weight && committed_.plan.side_of(root.root).separate_master) {
    write_piece(location_of(root, OTR_VALUE_PUBLISHED, true), part, values().data());
  }
}

void Values::end_restore() {
  committed_.states->settle();
  if (committed_.published.is_made_elsewhere()) committed_.published.publish();
  wrote_locally_ = false;
}

void Values::refresh_all() {
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    if (declared_.model.at(id).root != id) continue;
    committed_.gather.refresh(id);
    taken(id);
  }
}

}  // namespace outrigger::engine
