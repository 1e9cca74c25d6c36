// SPDX-License-Identifier: Apache-2.0
// Where the values of one parameter lie that OTR_VALUE_ names, and writing them there.
#include <algorithm>
#include <array>
#include <utility>

#include "core/engine/transfer.h"
#include "core/engine/values.h"
#include "kernels/composed.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

// The state that a value is.
State state_of(int32_t value) {
  return value == OTR_VALUE_EXP_AVG      ? State::exp_avg
         : value == OTR_VALUE_EXP_AVG_SQ ? State::exp_avg_sq
                                         : State::master;
}

}  // namespace

void Values::require_value(const layout::Parameter& root, int32_t value) const {
  const config::OptimizerConfig& optimizer = declared_.config.optimizer;
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
  const bool moment = value == OTR_VALUE_EXP_AVG || value == OTR_VALUE_EXP_AVG_SQ;
  if (optimizer.host && moment) {
    fail(OTR_E_NOT_FOUND,
         "parameter \"{}\" has no moments here: with optimizer.type \"Host\" the host keeps the "
         "states of its optimizer",
         root.name);
  }
  const bool first = value == OTR_VALUE_EXP_AVG;
  const bool kept = first ? optimizer.keeps_exp_avg() : optimizer.keeps_exp_avg_sq();
  if (moment && !kept) {
    fail(OTR_E_NOT_FOUND, "parameter \"{}\" has no {}: {}{} keeps none", root.name,
         first ? "exp_avg" : "exp_avg_sq", optimizer.type,
         first && optimizer.type == "SGD" ? " without momentum" : "");
  }
  if (moment && !committed_.states->keeps(state_of(value), root.root)) {
    fail(OTR_E_NOT_FOUND,
         "parameter \"{}\" has no exp_avg_sq: it is a matrix, of which Muon keeps exp_avg only",
         root.name);
  }
  if (value == OTR_VALUE_GRAD && window_.decision() == nullptr) {
    fail(OTR_E_NOT_FOUND,
         "the gradient of \"{}\" is not there: it is between otr_engine_reduce and "
         "otr_engine_step",
         root.name);
  }
}

// Elements [first, first + count) of the parameter, as far as they are of this piece.
std::optional<layout::Piece> Values::overlap(const std::optional<layout::Piece>& piece,
                                             int64_t first, int64_t count) {
  if (!piece) return {};
  const int64_t begin = std::max(first, piece->first);
  const int64_t end = std::min(first + count, piece->first + piece->count);
  if (begin >= end) return {};
  return layout::part_of(*piece, begin - piece->first, end - begin);
}

Values::Location Values::location_of(const layout::Parameter& root, int32_t value, bool write) {
  require_value(root, value);
  Location location;
  location.piece = committed_.local_piece(root.root);
  if (value == OTR_VALUE_PUBLISHED) {
    location.format = committed_.published.format();
    location.device = &committed_.published.device();
    if (location.piece) location.data = committed_.published.at(*location.piece);
    return location;
  }
  location.device = &committed_.back_of(root.root);
  if (value == OTR_VALUE_GRAD) {
    location.format = declared_.config.accumulator;
    location.factor = window_.decision()->mean;
    if (location.piece) location.data = window_.gradient(*location.piece);
    return location;
  }
  const State state = state_of(value);
  location.format = committed_.states->format(state);
  if (location.piece) {
    const StateSet touched{
        {state == State::master, state == State::exp_avg, state == State::exp_avg_sq}};
    location.lease =
        Lease(*committed_.states, *location.piece, touched, write ? touched : kNoStates);
    location.data = location.lease.states().of(state);
    const bool split = location.format == Format::split;
    location.beside_device = split ? &committed_.published.device() : location.device;
    location.beside = split
                          ? committed_.published.at(*location.piece)
                          : reinterpret_cast<std::byte*>(location.lease.states().scales_of(state));
  }
  return location;
}

Values::Location Values::opened(Location location, Block& values) {
  const Format format = location.format;
  if (!kernels::is_composed(format)) return location;
  if (location.piece) {
    const int64_t count = location.piece->count;
    values = Block(declared_.ledger, Purpose::acquired, count * 4);
    Block data, beside;
    const auto here = [&](device::Device& device, const std::byte* from, int64_t bytes,
                          Block& copy) {
      return on_host(declared_.ledger, device, from, bytes, copy);
    };
    kernels::read_composed(
        reinterpret_cast<float*>(values.data()),
        here(*location.device, location.data, kernels::plain_bytes_of(count, format), data),
        here(*location.beside_device, location.beside, kernels::beside_bytes_of(count, format),
             beside),
        format, count);
  }
  location.format = Format::float32;
  location.device = &committed_.host;
  location.data = values.data();
  return location;
}

// Writes float32 values to a part of the location's piece; what is composed, to nearest.
void Values::write_piece(const Location& location, const layout::Piece& part, const float* values) {
  std::byte* const to = location.at(part.first);
  const Format format = location.format;
  if (!kernels::is_composed(format)) {
    put(declared_.ledger, *location.device, to, format, values, part.count, location.factor);
    return;
  }
  std::byte* const beside = location.beside_at(part.first);
  const ForDevice data(declared_.ledger, *location.device, to,
                       kernels::plain_bytes_of(part.count, format));
  const ForDevice other(declared_.ledger, *location.beside_device, beside,
                        kernels::beside_bytes_of(part.count, format));
  kernels::write_composed(data.host(), other.host(), format, values, part.count);
  data.send();
  other.send();
}

// The same for a weight: the master, and the published value beside it.
void Values::write_weight(const layout::Piece& part, const float* values) {
  window_.note_written();
  const layout::Parameter& root = declared_.model.at(part.parameter);
  write_piece(location_of(root, OTR_VALUE_PUBLISHED, true), part, values);
  if (committed_.plan.side_of(root.root).separate_master) {
    write_piece(location_of(root, OTR_VALUE_MASTER, true), part, values);
  }
}

void Values::store(int64_t root, int64_t first, int64_t count, const float* values) {
  const auto part = overlap(committed_.local_piece(root), first, count);
  if (part) write_weight(*part, values + (part->first - first));
  const Published& published = committed_.published;
  if (declared_.model.at(root).trainable ? !published.replicates() : !published.writes_frozen()) {
    return;
  }
  const int64_t mine = part ? part->first : first + count, end = part ? mine + part->count : mine;
  store_published(root, first, mine - first, values);
  store_published(root, end, first + count - end, values + (end - first));
}

// Elements that this rank shows and does not update, as whoever does publishes them.
void Values::store_published(int64_t root, int64_t first, int64_t count, const float* values) {
  if (count <= 0) return;
  const Format format = committed_.published.format();
  std::byte* to = committed_.published.whole(root) + bytes_of(first, format);
  if (!declared_.model.at(root).trainable ||
      committed_.states->format(State::master) != Format::split) {
    put(declared_.ledger, committed_.published.device(), to, format, values, count, 1);
    return;
  }
  const ForDevice upper(declared_.ledger, committed_.published.device(), to, count * 2);
  std::array<uint16_t, 1024> lower{};
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(lower.size())) {
    kernels::split(reinterpret_cast<uint16_t*>(upper.host()) + i, lower.data(), values + i,
                   std::min<int64_t>(count - i, lower.size()));
  }
  upper.send();
}

}  // namespace outrigger::engine
