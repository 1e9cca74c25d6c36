// SPDX-License-Identifier: Apache-2.0
#include "core/engine/saved_bytes.h"

#include "core/checkpoint/planes.h"

namespace outrigger::engine {
namespace {

using checkpoint::Plane;
using kernels::Format;

int64_t bytes_of_planes(Format format, int64_t count) {
  int64_t bytes = 0;
  for (const Plane& plane : checkpoint::planes_of(format)) bytes += plane.bytes(count);
  return bytes;
}

}  // namespace

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

int64_t snapshot_room(int64_t states) {
  constexpr int64_t kOfTheHost = int64_t{256} << 10;  // the file's header, too
  return states + kOfTheHost;
}

}  // namespace outrigger::engine
