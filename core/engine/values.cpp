// SPDX-License-Identifier: Apache-2.0
// Whole parameters and states, in and out: for checks, exports and piecewise initialisation.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/engine/location.h"
#include "core/engine/step.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

// Of a piece, its part in elements [first, first + count) of the parameter.
std::optional<layout::Piece> part_of(const std::optional<layout::Piece>& piece, int64_t first,
                                     int64_t count) {
  if (!piece) return {};
  const int64_t begin = std::max(first, piece->first);
  const int64_t end = std::min(first + count, piece->first + piece->count);
  if (begin >= end) return {};
  const int64_t skipped = begin - piece->first;
  return layout::Piece{piece->parameter, begin, end - begin, piece->flat + skipped,
                       piece->shard + skipped};
}

}  // namespace

tensor::View Engine::view_for(const layout::Parameter& parameter, const otr_tensor& t,
                              const char* what) const {
  tensor::View view =
      tensor::check(t, format_text("the {} of \"{}\"", what, parameter.name), true, device());
  if (view.shape != parameter.shape) {
    fail(OTR_E_SHAPE, "the {} of \"{}\" has shape {}; the parameter has {}", what, parameter.name,
         tensor::text_of(view.shape), tensor::text_of(parameter.shape));
  }
  return view;
}

void Engine::read_value(int64_t id, int32_t value, const otr_tensor& out) {
  on_device([&] { copy_value(id, value, out); });
}

void Engine::copy_value(int64_t id, int32_t value, const otr_tensor& out) {
  require(State::committed, "otr_engine_parameter_read");
  const layout::Parameter& root = model_.root(id);
  const tensor::View view = view_for(model_.at(id), out, "output tensor");
  const Location stored = location_of(root, value);
  if (root.count == 0) return;
  Block piece;
  const Location location = opened(stored, local_piece(root.root), piece);
  const std::byte* here = value == OTR_VALUE_PUBLISHED ? storage_->whole(root.root)
                          : storage_->sharded()        ? nullptr
                                                       : location.at(*local_piece(root.root));
  if (here != nullptr && location.factor == 1 && location.device->is_host()) {
    write_tensor(view, here, location.format);
    return;
  }
  const int64_t bytes = bytes_of(root.count, location.format);
  const std::byte* from = here;
  Block whole, on_host;
  if (here == nullptr) {
    collective("otr_engine_parameter_read", Again::at_first, [&] {
      whole = Block(ledger_, Purpose::acquired, bytes, location.device);
      size_t done = 0;
      const Whole wanted{layout_->owners(model_, root.root), whole.data()};
      gather_pieces(*control_, *location.device, std::span(&wanted, 1),
                    kernels::size_of(location.format), location.at, "read a parameter", done);
    });
    from = whole.data();
  }
  if (!location.device->is_host()) {
    on_host = Block(ledger_, Purpose::acquired, bytes);
    location.device->download_now(on_host.data(), from, static_cast<size_t>(bytes));
    from = on_host.data();
  }
  if (location.factor == 1) {
    write_tensor(view, from, location.format);
    return;
  }
  const Block scaled(ledger_, Purpose::acquired, root.count * 4);
  kernels::scale(scaled.data(), Format::float32, from, location.format,
                 static_cast<float>(location.factor), root.count);
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
  if (!weight) static_cast<void>(location_of(root, value));
  require_writable(value, kCall);
  const tensor::View view = view_for(model_.at(id), source, "new value");
  if (root.count == 0) return;
  const Block scratch(ledger_, Purpose::acquired, std::min(root.count, kInitialElements) * 4);
  auto* const values = reinterpret_cast<float*>(scratch.data());
  const std::array<int64_t, 2> written{id, value};
  collective(
      kCall, Again::at_first,
      [&] {
        if (weight) gather_->settle();  // what is prefetched is about to change
        if (value != OTR_VALUE_GRAD) touch(root.root, value);
        for (int64_t first = 0; first < root.count; first += kInitialElements) {
          const int64_t n = std::min(kInitialElements, root.count - first);
          if (control_->rank() == 0) read_part(view, first, n, values);
          control_->broadcast(std::as_writable_bytes(std::span(values, static_cast<size_t>(n))), 0,
                              "write a parameter");
          if (weight) {
            store(root.root, first, n, values);
          } else if (const auto part = part_of(local_piece(root.root), first, n)) {
            write_piece(location_of(root, value), *part, values + (part->first - first));
          }
        }
        if (value == OTR_VALUE_GRAD) replaced_gradient(root);
        if (weight) publish_local_writes();
        control_->barrier("write a parameter");
        if (weight) gather_->refresh(root.root);
      },
      XXH3_64bits(written.data(), sizeof written));
  if (weight) taken(root.root);
}

// With the weight that was written, others get what ranks wrote into their own parts before.
void Engine::publish_local_writes() {
  if (!storage_->replicates()) return;
  if (comm::any(*control_, wrote_locally_, "write a parameter")) storage_->publish();
  wrote_locally_ = false;
}

// As float32, on the host.
void Engine::read_part(const tensor::View& view, int64_t first, int64_t count, float* values) {
  tensor::for_each_part(view, first, count, [&](const tensor::View& part, int64_t offset) {
    read_tensor(part, values + offset);
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
  Location location = location_of(root, value);
  if (write) require_writable(value, call);
  const auto piece = local_piece(root.root);
  const int64_t count = piece ? piece->count : 0;
  const bool weight = write && value == OTR_VALUE_MASTER;
  const tensor::View view =
      tensor::check(t, format_text("the local part of \"{}\"", model_.at(id).name), true, device());
  if (view.shape.size() != 1 || view.count != count) {
    fail(OTR_E_SHAPE, "the local part of \"{}\" has shape {}; here it is [{}]", model_.at(id).name,
         tensor::text_of(view.shape), count);
  }
  if (weight) taken(root.root);
  if (count == 0) return;
  const Block values(ledger_, Purpose::acquired, count * 4);
  if (!write) {
    Block plain;
    location = opened(location, piece, plain);
    const std::byte* from = location.at(*piece);
    const bool direct = location.device->is_host();
    const int64_t bytes = bytes_of(count, location.format);
    const Block on_host(ledger_, Purpose::acquired, direct ? 0 : bytes);
    if (!direct) {
      location.device->download_now(on_host.data(), from, static_cast<size_t>(bytes));
      from = on_host.data();
    }
    kernels::scale(values.data(), Format::float32, from, location.format,
                   static_cast<float>(location.factor), count);
    write_tensor(view, values.data(), Format::float32);
    return;
  }
  read_tensor(view, reinterpret_cast<float*>(values.data()));
  const auto* floats = reinterpret_cast<const float*>(values.data());
  if (value != OTR_VALUE_GRAD) touch(root.root, value);
  if (weight) {
    gather_->settle();
    write_weight(*piece, floats);
    wrote_locally_ = true;
  } else {
    write_piece(location, *piece, floats);
  }
  if (value == OTR_VALUE_GRAD) replaced_gradient(root);
}

void Engine::store(int64_t root, int64_t first, int64_t count, const float* values) {
  const auto part = part_of(local_piece(root), first, count);
  if (part) write_weight(*part, values + (part->first - first));
  if (model_.at(root).trainable ? !storage_->replicates() : !storage_->writes_frozen()) return;
  const int64_t mine = part ? part->first : first + count, end = part ? mine + part->count : mine;
  store_published(root, first, mine - first, values);
  store_published(root, end, first + count - end, values + (end - first));
}

// Elements that this rank shows and does not update, as whoever does publishes them.
void Engine::store_published(int64_t root, int64_t first, int64_t count, const float* values) {
  std::byte* to = storage_->whole(root) + bytes_of(first, storage_->compute());
  if (!model_.at(root).trainable || storage_->master_format() != Format::split) {
    if (count > 0) put(*devices_.front, to, storage_->compute(), values, count, 1);
    return;
  }
  std::array<uint16_t, 1024> lower{};
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(lower.size())) {
    kernels::split(reinterpret_cast<uint16_t*>(to) + i, lower.data(), values + i,
                   std::min<int64_t>(count - i, lower.size()));
  }
}

}  // namespace outrigger::engine
