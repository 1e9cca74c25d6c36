// SPDX-License-Identifier: Apache-2.0
// Whole parameters and states, in and out: for checks, exports and piecewise initialisation.
#include <algorithm>
#include <functional>
#include <span>

#include "core/engine/step.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

tensor::View view_for(const layout::Parameter& parameter, const otr_tensor& t, const char* what) {
  tensor::View view = tensor::check(t, fmt::format("the {} of \"{}\"", what, parameter.name));
  if (view.shape != parameter.shape) {
    fail(OTR_E_SHAPE, "the {} of \"{}\" has shape {}; the parameter has {}", what, parameter.name,
         tensor::text_of(view.shape), tensor::text_of(parameter.shape));
  }
  return view;
}

}  // namespace

// What OTR_VALUE_ names of one parameter: where a piece of it lies, in which format, and the factor
// that turns it into what the host sees.
struct Engine::Place {
  Format format;
  std::function<std::byte*(const layout::Piece&)> at;
  double factor = 1;
};

Engine::Place Engine::place_of(const layout::Parameter& root, int32_t value) const {
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
  switch (value) {
    case OTR_VALUE_MASTER:
      return {storage_->master_format(), [this](const auto& p) { return storage_->master(p); }};
    case OTR_VALUE_EXP_AVG:
      return {storage_->exp_avg_format(), [this](const auto& p) { return storage_->exp_avg(p); }};
    case OTR_VALUE_EXP_AVG_SQ:
      return {storage_->exp_avg_sq_format(),
              [this](const auto& p) { return storage_->exp_avg_sq(p); }};
    case OTR_VALUE_GRAD:
      if (!reduced_) {
        fail(OTR_E_NOT_FOUND,
             "the gradient of \"{}\" is not there: it is between otr_engine_reduce and "
             "otr_engine_step",
             root.name);
      }
      return {config_.accumulator, [this](const auto& p) { return reducer_->gradient(p); },
              reduced_->decision.mean};
    default:
      return {storage_->compute(), [this](const auto& p) { return storage_->published(p); }};
  }
}

void Engine::read_value(int64_t id, int32_t value, const otr_tensor& out) {
  require(State::committed, "otr_engine_parameter_read");
  const layout::Parameter& root = model_.root(id);
  const tensor::View view = view_for(model_.at(id), out, "output tensor");
  const Place place = place_of(root, value);
  if (root.count == 0) return;
  const int64_t flat = layout_->place(root.root).flat;
  const auto size = static_cast<int64_t>(kernels::size_of(place.format));
  const std::byte* here = value == OTR_VALUE_PUBLISHED ? storage_->whole(root.root)
                          : storage_->sharded()        ? nullptr
                                                : place.at({root.root, 0, root.count, flat, flat});
  if (here != nullptr && place.factor == 1) {
    tensor::write(view, here, place.format);
    return;
  }
  const Block whole(ledger_, Purpose::windows, root.count * size);
  if (here != nullptr) {
    std::copy_n(here, root.count * size, whole.data());
  } else {
    collective([&] {
      for (const auto& [rank, piece] : layout_->owners(model_, root.root)) {
        std::byte* part = whole.data() + piece.first * size;
        const auto bytes = static_cast<size_t>(piece.count * size);
        if (rank == control_->rank()) std::copy_n(place.at(piece), bytes, part);
        control_->broadcast({part, bytes}, rank, "read a parameter");
      }
    });
  }
  if (place.factor == 1) {
    tensor::write(view, whole.data(), place.format);
    return;
  }
  const Block scaled(ledger_, Purpose::windows, root.count * 4);
  kernels::scale(scaled.data(), Format::float32, whole.data(), place.format,
                 static_cast<float>(place.factor), root.count);
  tensor::write(view, scaled.data(), Format::float32);
}

// Writes `values` (float32, `count` elements from `first`) over the pieces of the parameter that
// lie here.
void Engine::write_pieces(const layout::Parameter& root, const Place& place, const float* values,
                          int64_t first, int64_t count) {
  const auto factor = static_cast<float>(1 / place.factor);
  for (const layout::Piece& piece : storage_->pieces()) {
    if (piece.parameter != root.root) continue;
    const int64_t begin = std::max(first, piece.first);
    const int64_t end = std::min(first + count, piece.first + piece.count);
    if (begin >= end) continue;
    std::byte* to = place.at(piece) +
                    (begin - piece.first) * static_cast<int64_t>(kernels::size_of(place.format));
    const float* from = values + (begin - first);
    if (factor == 1) {
      kernels::convert(to, place.format, from, Format::float32, end - begin);
    } else {
      kernels::scale(to, place.format, from, Format::float32, factor, end - begin);
    }
  }
}

void Engine::require_writable(int32_t value, const char* call) const {
  if (value == OTR_VALUE_PUBLISHED) {
    fail(OTR_E_ARGUMENT,
         "{}: the published value follows the master: write OTR_VALUE_MASTER, which sets both",
         call);
  }
  if (value != OTR_VALUE_GRAD && passes_in_window_ > 0) {
    fail(OTR_E_STATE,
         "{}: gradients of this window were taken at the old value; call otr_engine_step first",
         call);
  }
}

void Engine::write_value(int64_t id, int32_t value, const otr_tensor& source) {
  constexpr const char* kCall = "otr_engine_parameter_write";
  require(State::committed, kCall);
  const layout::Parameter& root = model_.root(id);
  // A parameter without a master has its published value as its one weight.
  const bool weight = value == OTR_VALUE_MASTER;
  if (!weight) static_cast<void>(place_of(root, value));
  require_writable(value, kCall);
  const tensor::View view = view_for(model_.at(id), source, "new value");
  if (root.count == 0) return;
  const Block values(ledger_, Purpose::windows, root.count * 4);
  if (control_->rank() == 0) tensor::read(values.data(), Format::float32, view);
  collective([&] {
    control_->broadcast({values.data(), static_cast<size_t>(root.count) * 4}, 0,
                        "write a parameter");
    const auto* floats = reinterpret_cast<const float*>(values.data());
    if (weight) {
      store(root.root, floats);
    } else {
      write_pieces(root, place_of(root, value), floats, 0, root.count);
    }
    if (value == OTR_VALUE_GRAD) {
      replaced_gradient(root);
    }
    if (weight) storage_->publish(*control_);
    control_->barrier("write a parameter");
    if (weight) gather_->refresh(root.root);
  });
}

void Engine::replaced_gradient(const layout::Parameter& root) {
  reduced_->replaced = true;
  reducer_->mark_present(root.root);
}

void Engine::local_range(int64_t id, int64_t& first, int64_t& count) const {
  require(State::committed, "otr_engine_local_range");
  first = count = 0;
  const layout::Parameter& root = model_.root(id);
  for (const layout::Piece& piece : storage_->pieces()) {
    if (piece.parameter != root.root) continue;
    first = piece.first;  // a parameter lies in one bucket, so it has one piece here at most
    count = piece.count;
  }
}

void Engine::local_value(int64_t id, int32_t value, const otr_tensor& t, bool write,
                         const char* call) {
  require(State::committed, call);
  const layout::Parameter& root = model_.root(id);
  const Place place = place_of(root, value);
  if (write) require_writable(value, call);
  int64_t first = 0, count = 0;
  local_range(id, first, count);
  const tensor::View view =
      tensor::check(t, fmt::format("the local part of \"{}\"", model_.at(id).name));
  if (view.shape.size() != 1 || view.count != count) {
    fail(OTR_E_SHAPE, "the local part of \"{}\" has shape {}; here it is [{}]", model_.at(id).name,
         tensor::text_of(view.shape), count);
  }
  if (count == 0) return;
  const Block values(ledger_, Purpose::windows, count * 4);
  if (!write) {
    for (const layout::Piece& piece : storage_->pieces()) {
      if (piece.parameter != root.root) continue;
      kernels::scale(values.data(), Format::float32, place.at(piece), place.format,
                     static_cast<float>(place.factor), count);
    }
    tensor::write(view, values.data(), Format::float32);
    return;
  }
  tensor::read(values.data(), Format::float32, view);
  const auto* floats = reinterpret_cast<const float*>(values.data());
  write_pieces(root, place, floats, first, count);
  if (value == OTR_VALUE_MASTER && storage_->has_separate_master()) {
    write_pieces(root, place_of(root, OTR_VALUE_PUBLISHED), floats, first, count);
  }
  if (value == OTR_VALUE_GRAD) replaced_gradient(root);
}

void Engine::store(int64_t root, const float* values) {
  const layout::Parameter& parameter = model_.at(root);
  const auto convert = [&](std::byte* to, Format format, int64_t first, int64_t count) {
    kernels::convert(to, format, values + first, Format::float32, count);
  };
  if (!parameter.trainable) {
    if (storage_->writes_frozen()) {
      convert(storage_->whole(root), storage_->compute(), 0, parameter.count);
    }
    return;
  }
  for (const layout::Piece& piece : storage_->pieces()) {
    if (piece.parameter != root) continue;
    convert(storage_->published(piece), storage_->compute(), piece.first, piece.count);
    if (!storage_->has_separate_master()) continue;
    convert(storage_->master(piece), storage_->master_format(), piece.first, piece.count);
  }
}

}  // namespace outrigger::engine
