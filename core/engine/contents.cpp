// SPDX-License-Identifier: Apache-2.0
#include "core/engine/contents.h"

#include <algorithm>
#include <array>

namespace outrigger::engine {

using checkpoint::Manifest;
using checkpoint::Plane;
using kernels::Format;

namespace {

std::vector<Section> sections_to_write(const Declared& declared, const Committed& committed) {
  std::vector<Section> sections = sections_of(committed);
  if (committed.sharded()) return sections;
  std::vector<Section> own;
  for (Section& s : sections) {
    if (s.kept != Kept::published) {
      const auto piece =
          committed.layout.piece(declared.model, s.parameter, committed.control.slice());
      if (!piece) continue;
      s.first = piece->first;
      s.count = piece->count;
    }
    own.push_back(s);
  }
  return own;
}

int64_t bytes_of_planes(Format format, int64_t count) {
  int64_t bytes = 0;
  for (const Plane& plane : checkpoint::planes_of(format)) bytes += plane.bytes(count);
  return bytes;
}

}  // namespace

Contents::Contents(Declared& declared, Committed& committed, const Manifest& manifest,
                   const std::vector<HostPart>& parts)
    : declared_(declared),
      committed_(committed),
      parts_(parts),
      sections_(sections_to_write(declared, committed)) {
  const int64_t rank = committed.control.rank();
  for (const Section& s : sections_) {
    const Manifest::Parameter& p = manifest.parameters[static_cast<size_t>(s.parameter)];
    const auto planes = checkpoint::planes_of(s.format);
    for (size_t i = 0; i < planes.size(); ++i) {
      const Plane& plane = planes[i];
      const bool whole = s.count == p.count() && plane.per == 1;
      tensors_.push_back({checkpoint::tensor_name(p, s.kept, plane.suffix, s.first, s.count),
                          plane.dtype,
                          whole ? p.shape : std::vector<int64_t>{plane.extent(s.count)}});
      rows_.push_back({rank, s.parameter, static_cast<int64_t>(s.kept), static_cast<int64_t>(i),
                       s.first, s.count, 0});
    }
  }
  for (const HostPart& part : parts) {
    const auto bytes = static_cast<int64_t>(part.bytes.size());
    tensors_.push_back({checkpoint::part_name(part.name), checkpoint::Dtype::u8, {bytes}});
    rows_.push_back({rank, -1, 0, 0, checkpoint::part_hash(part.name), bytes, 0});
  }
}

void Contents::each(const Take& take) const {
  std::vector<std::byte> scratch;
  size_t tensor = 0;
  for (const Section& s : sections_) {
    const auto planes = checkpoint::planes_of(s.format);
    for (int64_t done = 0; done < s.count; done += kRunAtATime) {
      Section part = s;
      part.first += done;
      part.count = std::min(kRunAtATime, s.count - done);
      visit_section(declared_, committed_, part, [&](const checkpoint::Run& run) {
        for (size_t i = 0; i < planes.size(); ++i) {
          take(tensor + i, planes[i].bytes(done),
               checkpoint::plane_bytes(s.format, i, run, scratch));
        }
      });
    }
    tensor += planes.size();
  }
  for (const HostPart& part : parts_) take(tensor++, 0, part.bytes);
}

int64_t bytes_to_save(const layout::Model& model, const layout::Layout& layout,
                      const config::EngineConfig& config, const comm::Shape& shape) {
  if (!shape.counts) return 0;
  const config::OptimizerConfig& states = config.optimizer;
  int64_t bytes = 0;
  int32_t owner = 0;
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    if (p.root != id || p.count == 0) continue;
    if (!p.trainable) {
      if (owner == shape.slice) bytes += bytes_of_planes(config.compute, p.count);
      owner = (owner + 1) % shape.slices;
      continue;
    }
    const auto piece = layout.piece(model, id, shape.slice);
    if (!piece) continue;
    bytes += bytes_of_planes(states.master.format, piece->count);
    if (states.keeps_exp_avg()) bytes += bytes_of_planes(states.exp_avg.format, piece->count);
    if (states.keeps_exp_avg_sq() && !p.matrix) {
      bytes += bytes_of_planes(states.exp_avg_sq.format, piece->count);
    }
  }
  return bytes;
}

}  // namespace outrigger::engine
