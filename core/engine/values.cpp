// SPDX-License-Identifier: Apache-2.0
#include "core/engine/values.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/engine/start.h"
#include "core/engine/transfer.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

Values::Values(Declared& declared, Committed& committed, Window& window, Health& health)
    : declared_(declared),
      committed_(committed),
      window_(window),
      health_(health),
      touched_(static_cast<size_t>(declared.model.size()), 0) {}

void Values::read(int64_t id, int32_t value, const otr_tensor& out) {
  const layout::Parameter& root = declared_.model.root(id);
  const tensor::View view = view_for(declared_, declared_.model.at(id), out, "output tensor");
  Location stored = location_of(root, value, false);
  if (root.count == 0) return;
  Block piece;
  const Location location = opened(std::move(stored), piece);
  const std::byte* here = value == OTR_VALUE_PUBLISHED ? committed_.published.whole(root.root)
                          : committed_.sharded()       ? nullptr
                                                       : location.data;
  if (here != nullptr && location.factor == 1 && location.device->is_host()) {
    write_tensor(declared_.ledger, declared_.front(), view, here, location.format);
    return;
  }
  const int64_t bytes = bytes_of(root.count, location.format);
  const std::byte* from = here;
  Block whole, copy;
  if (here == nullptr) {
    health_.collective("otr_engine_parameter_read", Again::at_first, [&] {
      whole = Block(declared_.ledger, Purpose::acquired, bytes, location.device);
      size_t done = 0;
      device::Device& device = *location.device;
      Bounce bounce(device);
      const Whole wanted{committed_.layout.owners(declared_.model, root.root), whole.data()};
      gather_pieces(committed_.control, device, bounce, std::span(&wanted, 1), {location.format},
                    {[&](const auto&) { return location.data; }}, "read a parameter", done);
      device.wait(device.own_stream(), device.record(device.upload_stream()));
    });
    from = whole.data();
  }
  from = on_host(declared_.ledger, *location.device, from, bytes, copy);
  if (location.factor == 1) {
    write_tensor(declared_.ledger, declared_.front(), view, from, location.format);
    return;
  }
  const Block scaled(declared_.ledger, Purpose::acquired, root.count * 4);
  kernels::scale(scaled.data(), Format::float32, from, location.format,
                 static_cast<float>(location.factor), root.count);
  write_tensor(declared_.ledger, declared_.front(), view, scaled.data(), Format::float32);
}

void Values::require_writable(int32_t value, const char* call) const {
  if (value == OTR_VALUE_PUBLISHED) {
    fail(OTR_E_ARGUMENT,
         "{}: the published value follows the master: write OTR_VALUE_MASTER, which sets both",
         call);
  }
  if (value == OTR_VALUE_MASTER && declared_.config.optimizer.host &&
      window_.decision() != nullptr) {
    window_.require_updatable(call);
  } else if (value != OTR_VALUE_GRAD && window_.passes() > 0) {
    fail(OTR_E_STATE,
         "{}: gradients of this window were taken at the old value; call otr_engine_step first",
         call);
  }
}

void Values::write(int64_t id, int32_t value, const otr_tensor& source) {
  constexpr const char* kCall = "otr_engine_parameter_write";
  const layout::Parameter& root = declared_.model.root(id);
  // A parameter without a master has its published value as its one weight.
  const bool weight = value == OTR_VALUE_MASTER;
  if (!weight) require_value(root, value);
  require_writable(value, kCall);
  const tensor::View view = view_for(declared_, declared_.model.at(id), source, "new value");
  if (root.count == 0) return;
  const Block scratch(declared_.ledger, Purpose::acquired,
                      std::min(root.count, kInitialElements) * 4);
  auto* const values = reinterpret_cast<float*>(scratch.data());
  comm::Communicator& control = committed_.control;
  const std::array<int64_t, 2> written{id, value};
  const auto write_all = [&] {
    if (weight) settle(kCall);
    if (value != OTR_VALUE_GRAD) touch(root.root, value);
    Location location;
    if (!weight) location = location_of(root, value, true);
    for (int64_t first = 0; first < root.count; first += kInitialElements) {
      const int64_t n = std::min(kInitialElements, root.count - first);
      if (control.rank() == 0)
        read_part(declared_.ledger, declared_.front(), view, first, n, values);
      control.broadcast(std::as_writable_bytes(std::span(values, static_cast<size_t>(n))), 0,
                        "write a parameter");
      if (weight) {
        store(root.root, first, n, values);
      } else if (const auto part = overlap(location.piece, first, n)) {
        write_piece(location, *part, values + (part->first - first));
      }
    }
    if (value == OTR_VALUE_GRAD) window_.note_replaced(root.root);
    if (weight) publish(std::span(&root.root, 1));
    control.barrier("write a parameter");
    if (weight) committed_.gather.refresh(root.root);
  };
  health_.collective(kCall, Again::at_first, write_all,
                     XXH3_64bits(written.data(), sizeof written));
  if (weight) taken(root.root);
}

void Values::settle(const char* label) {
  window_.come_after_callers();
  committed_.gather.settle();
  if (committed_.published.is_offloaded()) committed_.control.barrier(label);
}

// With the weight that was written, others get what ranks wrote into their own parts before.
void Values::publish(std::span<const int64_t> roots) {
  Published& published = committed_.published;
  if (!published.is_made_elsewhere()) return;
  if (comm::any(committed_.control, wrote_locally_, "write a parameter")) {
    published.publish();
  } else {
    published.publish(roots);
  }
  wrote_locally_ = false;
}

tensor::View Values::local_view(const layout::Parameter& parameter, const layout::Parameter& root,
                                const otr_tensor& t) const {
  const auto piece = committed_.local_piece(root.root);
  const int64_t count = piece ? piece->count : 0;
  tensor::View view =
      tensor::check(t, {"the local part of", parameter.name}, true, declared_.device_id());
  if (view.shape.size() != 1 || view.count != count) {
    fail(OTR_E_SHAPE, "the local part of \"{}\" has shape {}; here it is [{}]", parameter.name,
         tensor::text_of(view.shape), count);
  }
  return view;
}

void Values::read_local(int64_t id, int32_t value, const otr_tensor& out) {
  const layout::Parameter& root = declared_.model.root(id);
  Block plain;
  const Location location = opened(location_of(root, value, false), plain);
  const tensor::View view = local_view(declared_.model.at(id), root, out);
  if (view.count == 0) return;
  Block copy;
  const std::byte* from = on_host(declared_.ledger, *location.device, location.data,
                                  bytes_of(view.count, location.format), copy);
  const Block values(declared_.ledger, Purpose::acquired, view.count * 4);
  kernels::scale(values.data(), Format::float32, from, location.format,
                 static_cast<float>(location.factor), view.count);
  write_tensor(declared_.ledger, declared_.front(), view, values.data(), Format::float32);
}

void Values::write_local(int64_t id, int32_t value, const otr_tensor& source) {
  constexpr const char* kCall = "otr_engine_local_write";
  const layout::Parameter& root = declared_.model.root(id);
  require_value(root, value);
  require_writable(value, kCall);
  const bool weight = value == OTR_VALUE_MASTER;
  const tensor::View view = local_view(declared_.model.at(id), root, source);
  if (weight) taken(root.root);
  if (view.count == 0) return;
  const Block values(declared_.ledger, Purpose::acquired, view.count * 4);
  auto* const floats = reinterpret_cast<float*>(values.data());
  read_tensor(declared_.ledger, declared_.front(), view, floats);
  if (value != OTR_VALUE_GRAD) touch(root.root, value);
  if (weight) {
    window_.come_after_callers();
    committed_.gather.settle();
    write_weight(*committed_.local_piece(root.root), floats);
    committed_.gather.note_written(root.root);
    wrote_locally_ = true;
  } else {
    const Location location = location_of(root, value, true);
    write_piece(location, *location.piece, floats);
  }
  if (value == OTR_VALUE_GRAD) window_.note_replaced(root.root);
}

}  // namespace outrigger::engine
