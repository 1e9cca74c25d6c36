// SPDX-License-Identifier: Apache-2.0
// Whole parameters and states, in and out: for checks, exports and piecewise initialisation.
#include <functional>
#include <optional>

#include "core/context/text.h"
#include "core/engine/place.h"
#include "core/engine/step.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

tensor::View view_for(const layout::Parameter& parameter, const otr_tensor& t, const char* what,
                      const otr_device& device) {
  tensor::View view =
      tensor::check(t, format_text("the {} of \"{}\"", what, parameter.name), true, device);
  if (view.shape != parameter.shape) {
    fail(OTR_E_SHAPE, "the {} of \"{}\" has shape {}; the parameter has {}", what, parameter.name,
         tensor::text_of(view.shape), tensor::text_of(parameter.shape));
  }
  return view;
}

}  // namespace

void Engine::read_value(int64_t id, int32_t value, const otr_tensor& out) {
  on_device([&] { copy_value(id, value, out); });
}

void Engine::copy_value(int64_t id, int32_t value, const otr_tensor& out) {
  require(State::committed, "otr_engine_parameter_read");
  const layout::Parameter& root = model_.root(id);
  const tensor::View view = view_for(model_.at(id), out, "output tensor", device());
  const Place stored = place_of(root, value);
  if (root.count == 0) return;
  Block piece;
  const Place place = opened(stored, local_piece(root.root), piece);
  const std::byte* here = value == OTR_VALUE_PUBLISHED ? storage_->whole(root.root)
                          : storage_->sharded()        ? nullptr
                                                       : place.at(*local_piece(root.root));
  if (here != nullptr && place.factor == 1 && place.device->is_host()) {
    write_tensor(view, here, place.format);
    return;
  }
  const int64_t bytes = bytes_of(root.count, place.format);
  const std::byte* from = here;
  Block whole, on_host;
  if (here == nullptr) {
    collective("otr_engine_parameter_read", Again::at_first, [&] {
      whole = Block(ledger_, Purpose::windows, bytes, place.device);
      size_t done = 0;
      gather_pieces(*control_, *place.device, layout_->owners(model_, root.root),
                    kernels::size_of(place.format), place.at, whole.data(), "read a parameter",
                    done);
    });
    from = whole.data();
  }
  if (!place.device->is_host()) {
    on_host = Block(ledger_, Purpose::windows, bytes);
    place.device->download_now(on_host.data(), from, static_cast<size_t>(bytes));
    from = on_host.data();
  }
  if (place.factor == 1) {
    write_tensor(view, from, place.format);
    return;
  }
  const Block scaled(ledger_, Purpose::windows, root.count * 4);
  kernels::scale(scaled.data(), Format::float32, from, place.format,
                 static_cast<float>(place.factor), root.count);
  write_tensor(view, scaled.data(), Format::float32);
}

void Engine::require_writable(int32_t value, const char* call) const {
  if (value == OTR_VALUE_PUBLISHED) {
    fail(OTR_E_ARGUMENT,
         "{}: the published value follows the master: write OTR_VALUE_MASTER, which sets both",
         call);
  }
  if (value == OTR_VALUE_MASTER && config_.optimizer.host && reduced_) {
    require_updatable(call);
  } else if (value != OTR_VALUE_GRAD && passes_in_window_ > 0) {
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
  const tensor::View view = view_for(model_.at(id), source, "new value", device());
  if (root.count == 0) return;
  const Block values(ledger_, Purpose::windows, root.count * 4);
  if (control_->rank() == 0) {
    on_device([&] { read_tensor(view, reinterpret_cast<float*>(values.data())); });
  }
  collective(kCall, Again::at_first, [&] {
    if (weight) gather_->settle();  // what is prefetched is about to change
    control_->broadcast({values.data(), static_cast<size_t>(root.count) * 4}, 0,
                        "write a parameter");
    const auto* floats = reinterpret_cast<const float*>(values.data());
    if (weight) {
      store(root.root, floats);
      storage_->publish();
    } else if (const auto piece = local_piece(root.root)) {
      write_piece(place_of(root, value), *piece, floats + piece->first);
    }
    if (value == OTR_VALUE_GRAD) replaced_gradient(root);
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
  const auto piece = local_piece(model_.root(id).root);
  first = piece ? piece->first : 0;
  count = piece ? piece->count : 0;
}

void Engine::local_value(int64_t id, int32_t value, const otr_tensor& t, bool write,
                         const char* call) {
  on_device([&] { access_local(id, value, t, write, call); });
}

void Engine::access_local(int64_t id, int32_t value, const otr_tensor& t, bool write,
                          const char* call) {
  require(State::committed, call);
  const layout::Parameter& root = model_.root(id);
  Place place = place_of(root, value);
  if (write) require_writable(value, call);
  const auto piece = local_piece(root.root);
  const int64_t count = piece ? piece->count : 0;
  const tensor::View view =
      tensor::check(t, format_text("the local part of \"{}\"", model_.at(id).name), true, device());
  if (view.shape.size() != 1 || view.count != count) {
    fail(OTR_E_SHAPE, "the local part of \"{}\" has shape {}; here it is [{}]", model_.at(id).name,
         tensor::text_of(view.shape), count);
  }
  if (count == 0) return;
  const Block values(ledger_, Purpose::windows, count * 4);
  if (!write) {
    Block plain;
    place = opened(place, piece, plain);
    const std::byte* from = place.at(*piece);
    const bool direct = place.device->is_host();
    const int64_t bytes = bytes_of(count, place.format);
    const Block on_host(ledger_, Purpose::windows, direct ? 0 : bytes);
    if (!direct) {
      place.device->download_now(on_host.data(), from, static_cast<size_t>(bytes));
      from = on_host.data();
    }
    kernels::scale(values.data(), Format::float32, from, place.format,
                   static_cast<float>(place.factor), count);
    write_tensor(view, values.data(), Format::float32);
    return;
  }
  read_tensor(view, reinterpret_cast<float*>(values.data()));
  const auto* floats = reinterpret_cast<const float*>(values.data());
  if (value == OTR_VALUE_MASTER) {
    gather_->settle();
    write_weight(*piece, floats);
  } else {
    write_piece(place, *piece, floats);
  }
  if (value == OTR_VALUE_GRAD) replaced_gradient(root);
}

void Engine::store(int64_t root, const float* values) {
  const layout::Parameter& parameter = model_.at(root);
  if (const auto piece = local_piece(root)) {
    write_weight(*piece, values + piece->first);
  } else if (!parameter.trainable && storage_->writes_frozen()) {
    put(*devices_.front, storage_->whole(root), storage_->compute(), values, parameter.count, 1);
  }
}

}  // namespace outrigger::engine
