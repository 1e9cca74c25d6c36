// SPDX-License-Identifier: Apache-2.0
// Whole parameters and states, in and out: for checks, exports and piecewise initialisation.
#include <span>

#include "core/engine/engine.h"
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

void Engine::read_value(int64_t id, int32_t value, const otr_tensor& out) {
  require(State::committed, "otr_engine_parameter_read");
  const layout::Parameter& root = model_.root(id);
  const tensor::View view = view_for(model_.at(id), out, "output tensor");
  if (value < OTR_VALUE_MASTER || value > OTR_VALUE_EXP_AVG_SQ) {
    fail(OTR_E_ARGUMENT,
         "value {} is not one of OTR_VALUE_MASTER ({}) to OTR_VALUE_EXP_AVG_SQ ({})", value,
         static_cast<int>(OTR_VALUE_MASTER), static_cast<int>(OTR_VALUE_EXP_AVG_SQ));
  }
  if (!root.trainable && value != OTR_VALUE_PUBLISHED) {
    fail(OTR_E_NOT_FOUND,
         "parameter \"{}\" is frozen: it has no master and no states, only a published value",
         root.name);
  }
  if (value == OTR_VALUE_PUBLISHED || root.count == 0) {
    tensor::write(view, storage_->published(layout_->place(root.root).flat), storage_->compute());
    return;
  }
  const Format format = value == OTR_VALUE_MASTER    ? storage_->master_format()
                        : value == OTR_VALUE_EXP_AVG ? storage_->exp_avg_format()
                                                     : storage_->exp_avg_sq_format();
  const auto at = [&](const layout::Piece& piece) {
    return value == OTR_VALUE_MASTER    ? storage_->master(piece)
           : value == OTR_VALUE_EXP_AVG ? storage_->exp_avg(piece)
                                        : storage_->exp_avg_sq(piece);
  };
  if (!storage_->sharded()) {
    const int64_t flat = layout_->place(root.root).flat;
    tensor::write(view, at({root.root, 0, root.count, flat, flat}), format);
    return;
  }
  const auto size = static_cast<int64_t>(kernels::size_of(format));
  const Block whole(ledger_, Purpose::windows, root.count * size);
  collective([&] {
    for (const auto& [rank, piece] : layout_->owners(model_, root.root)) {
      std::byte* part = whole.data() + piece.first * size;
      const auto bytes = static_cast<size_t>(piece.count * size);
      if (rank == control_->rank()) std::copy_n(at(piece), bytes, part);
      control_->broadcast({part, bytes}, rank, "read a parameter");
    }
  });
  tensor::write(view, whole.data(), format);
}

void Engine::write_value(int64_t id, const otr_tensor& value) {
  require(State::committed, "otr_engine_parameter_write");
  if (passes_in_window_ > 0) {
    fail(OTR_E_STATE,
         "otr_engine_parameter_write: gradients of this window were taken at the old value; "
         "call otr_engine_step first");
  }
  const layout::Parameter& root = model_.root(id);
  const tensor::View view = view_for(model_.at(id), value, "new value");
  if (root.count == 0) return;
  const Block values(ledger_, Purpose::windows, root.count * 4);
  if (control_->rank() == 0) tensor::read(values.data(), Format::float32, view);
  collective([&] {
    control_->broadcast({values.data(), static_cast<size_t>(root.count) * 4}, 0,
                        "write a parameter");
    store(root.root, reinterpret_cast<const float*>(values.data()));
    control_->barrier("write a parameter");
    gather_->refresh(root.root);
  });
}

void Engine::store(int64_t root, const float* values) {
  const auto publish = [&](int64_t first, int64_t count, int64_t flat) {
    kernels::convert(storage_->published(flat), storage_->compute(), values + first,
                     Format::float32, count);
  };
  const layout::Parameter& parameter = model_.at(root);
  const int64_t flat = layout_->place(root).flat;
  if (!parameter.trainable) {
    if (storage_->writes_frozen()) publish(0, parameter.count, flat);
    return;
  }
  const auto store_piece = [&](const layout::Piece& piece) {
    publish(piece.first, piece.count, piece.flat);
    if (!storage_->has_separate_master()) return;
    kernels::convert(storage_->master(piece), storage_->master_format(), values + piece.first,
                     Format::float32, piece.count);
  };
  if (!storage_->sharded()) {
    store_piece({root, 0, parameter.count, flat, flat});
    return;
  }
  for (const auto& [rank, piece] : layout_->owners(model_, root)) {
    if (rank == control_->rank()) store_piece(piece);
  }
}

}  // namespace outrigger::engine
