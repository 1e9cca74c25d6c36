// SPDX-License-Identifier: Apache-2.0
#include "core/engine/location.h"

#include <optional>

#include "core/engine/step.h"
#include "kernels/composed.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

Engine::Location Engine::location_of(const layout::Parameter& root, int32_t value) const {
  if (value < OTR_VALUE_MASTER || value > OTR_VALUE_GRAD) {
    fail(OTR_E_ARGUMENT, "value {} is not one of OTR_VALUE_MASTER ({}) to OTR_VALUE_GRAD ({})",
         value, static_cast<int>(OTR_VALUE_MASTER), static_cast<int>(OTR_VALUE_GRAD));
  }
  if (!root.trainable && value != OTR_VALUE_PUBLISHED) {
    fail(OTR_E_NOT_FOUND,
         "parameter \"{}\" is frozen: it has no master, no states and no gradient, only a "
         "published value",
         root.name);
  }
  if (config_.optimizer.host && (value == OTR_VALUE_EXP_AVG || value == OTR_VALUE_EXP_AVG_SQ)) {
    fail(OTR_E_NOT_FOUND,
         "parameter \"{}\" has no moments here: with optimizer.type \"Host\" the host keeps the "
         "states of its optimizer",
         root.name);
  }
  const bool kept = value == OTR_VALUE_EXP_AVG      ? config_.optimizer.keeps_exp_avg()
                    : value == OTR_VALUE_EXP_AVG_SQ ? config_.optimizer.keeps_exp_avg_sq()
                                                    : true;
  if (!kept) {
    fail(OTR_E_NOT_FOUND, "parameter \"{}\" has no {}: {}{} keeps none", root.name,
         value == OTR_VALUE_EXP_AVG ? "exp_avg" : "exp_avg_sq", config_.optimizer.type,
         value == OTR_VALUE_EXP_AVG && config_.optimizer.type == "SGD" ? " without momentum" : "");
  }
  if (value == OTR_VALUE_EXP_AVG_SQ && root.matrix) {
    fail(OTR_E_NOT_FOUND,
         "parameter \"{}\" has no exp_avg_sq: it is a matrix, of which Muon keeps exp_avg only",
         root.name);
  }
  device::Device* const back = devices_.back;
  switch (value) {
    case OTR_VALUE_MASTER:
      return {storage_->master_format(), [this](const auto& p) { return storage_->master(p); },
              back};
    case OTR_VALUE_EXP_AVG:
      return {storage_->exp_avg_format(), [this](const auto& p) { return storage_->exp_avg(p); },
              back};
    case OTR_VALUE_EXP_AVG_SQ:
      return {storage_->exp_avg_sq_format(),
              [this](const auto& p) { return storage_->exp_avg_sq(p); }, back};
    case OTR_VALUE_GRAD:
      if (!reduced_) {
        fail(OTR_E_NOT_FOUND,
             "the gradient of \"{}\" is not there: it is between otr_engine_reduce and "
             "otr_engine_step",
             root.name);
      }
      return {config_.accumulator, [this](const auto& p) { return reducer_->gradient(p); }, back,
              reduced_->decision.mean};
    default:
      return {storage_->compute(), [this](const auto& p) { return storage_->published(p); },
              devices_.front};
  }
}

// A parameter lies in one bucket, of which each rank has one slice: so one piece at most is here.
std::optional<layout::Piece> Engine::local_piece(int64_t root) const {
  const layout::Parameter& parameter = model_.at(root);
  if (!parameter.trainable || parameter.count == 0) return {};
  if (!storage_->sharded()) {
    const int64_t flat = layout_->position(root).flat;
    return layout::Piece{root, 0, parameter.count, flat, flat};
  }
  for (const auto& [rank, piece] : layout_->owners(model_, root)) {
    if (rank == control_->rank()) return piece;
  }
  return {};
}

// The same with the piece that lies here turned into plain float32 in `values`.
Engine::Location Engine::opened(const Location& location, const std::optional<layout::Piece>& piece,
                                Block& values) {
  if (!kernels::is_composed(location.format)) return location;
  if (piece) {
    values = Block(ledger_, Purpose::acquired, piece->count * 4);
    kernels::read_composed(reinterpret_cast<float*>(values.data()), location.at(*piece),
                           location.format,
                           reinterpret_cast<uint16_t*>(storage_->published(*piece)), piece->count);
  }
  return {Format::float32, [&values](const auto&) { return values.data(); }, location.device,
          location.factor};
}

// Writes the piece's float32 values; what is composed, to nearest.
void Engine::write_piece(const Location& location, const layout::Piece& piece,
                         const float* values) {
  if (kernels::is_composed(location.format)) {
    kernels::write_composed(location.at(piece), location.format,
                            reinterpret_cast<uint16_t*>(storage_->published(piece)), values,
                            piece.count);
    return;
  }
  put(*location.device, location.at(piece), location.format, values, piece.count, location.factor);
}

// The same for a weight: the master, and the published value beside it.
void Engine::write_weight(const layout::Piece& piece, const float* values) {
  if (reduced_) reduced_->updated = true;
  const layout::Parameter& root = model_.at(piece.parameter);
  write_piece(location_of(root, OTR_VALUE_PUBLISHED), piece, values);
  if (storage_->has_separate_master()) {
    write_piece(location_of(root, OTR_VALUE_MASTER), piece, values);
  }
}

}  // namespace outrigger::engine
