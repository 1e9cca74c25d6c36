// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pass.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace outrigger::engine {

Pass::Pass(Owner owner, const otr_tensor* output_grads, int64_t count, const Tag& tag,
           bool keep_dtype, device::Stream stream)
    : owner_(std::move(owner)),
      tag_(owner_.window.tag_after(tag)),
      scale_(owner_.window.factor_for(tag)),
      stream_(stream),
      began_(owner_.declared.timeline.is_on() ? observe::now() : 0) {
  owner_.window.note_stream(stream);
  for (int64_t i = 0; i < count; ++i) add_output(output_grads[i], keep_dtype);
  sink_ = owner_.window.begin_pass();
  if (seed_overflow_ >= 0) owner_.window.note_seed_overflow();
}

void Pass::add_output(const otr_tensor& grad, bool keep_dtype) {
  using kernels::Format;
  const auto index = static_cast<int64_t>(outputs_.size());
  const tensor::View view = view_of(grad, format_text("output gradient {}", index));
  const bool keep = keep_dtype && view.format != Format::float64;
  Output output{view.shape, keep ? view.format : Format::float32, {}};
  const int64_t bytes = bytes_of(view.count, output.format);
  output.values =
      memory::Block(owner_.declared.ledger, memory::Purpose::outputs, bytes, &front(), stream_);
  front().read(output.values.data(), output.format, view, static_cast<float>(scale_), stream_);
  if (scale_ > 1 && seed_overflow_ < 0 && overflows(output, view)) {
    seed_overflow_ = index;
    owner_.declared.context->log(
        OTR_LOG_WARNING,
        format_text("output gradient {} is finite, but not in {} after it is multiplied by {} "
                    "(loss scale {}): this window will be skipped",
                    index, tensor::name_of(output.format), scale_, tag_.loss_scale));
  }
  outputs_.push_back(std::move(output));
}

tensor::View Pass::view_of(const otr_tensor& t, const Subject& what) const {
  tensor::require_device(t, what, front().id());
  return tensor::check(t, what, true, front().id());
}

bool Pass::overflows(const Output& output, const tensor::View& given) const {
  const auto nonfinite = [&](const memory::Block& values) {
    front().synchronize(stream_);
    return front().norm(values.data(), output.format, given.count, 0).nonfinite;
  };
  const int64_t scaled = nonfinite(output.values);
  if (scaled == 0) return false;
  const memory::Block unscaled(owner_.declared.ledger, memory::Purpose::scratch,
                               bytes_of(given.count, output.format), &front(), stream_);
  front().read(unscaled.data(), output.format, given, 1, stream_);
  return nonfinite(unscaled) < scaled;
}

Pass::~Pass() { abandon(); }

void Pass::require_open(const char* call) const {
  if (!open_) fail(OTR_E_STATE, "{}: the pass has ended; begin another with otr_pass_begin", call);
}

otr_tensor Pass::output_grad(int64_t index) const {
  if (index < 0 || index >= static_cast<int64_t>(outputs_.size())) {
    fail(OTR_E_ARGUMENT, "output gradient {} does not exist: this pass began with {}", index,
         outputs_.size());
  }
  const Output& output = outputs_[static_cast<size_t>(index)];
  return tensor::make(output.values.data(), output.format, output.shape, front().id());
}

void Pass::unscale(const otr_tensor& from, const otr_tensor& to) const {
  const tensor::View source = view_of(from, "the scaled gradient");
  const tensor::View target = view_of(to, "the output tensor");
  if (source.shape != target.shape) {
    fail(OTR_E_SHAPE, "the scaled gradient has shape {}, the output tensor {}: they must be equal",
         tensor::text_of(source.shape), tensor::text_of(target.shape));
  }
  owner_.health.on_device([&] {
    const memory::Block values(owner_.declared.ledger, memory::Purpose::scratch, source.count * 4,
                               &front(), stream_);
    const double factor = std::max(1, tag_.accumulation) / tag_.loss_scale;
    front().read(values.data(), kernels::Format::float32, source, static_cast<float>(factor),
                 stream_);
    front().write(target, values.data(), kernels::Format::float32, stream_);
  });
}

const layout::Parameter& Pass::target(int64_t id) const {
  const layout::Parameter& root = owner_.declared.model.root(id);
  if (!root.trainable) {
    fail(OTR_E_STATE,
         "parameter \"{}\" (id {}) is frozen and takes no gradient: leave it out, or declare it "
         "with trainable = 1",
         owner_.declared.model.at(id).name, id);
  }
  if (root.frozen) {
    fail(OTR_E_STATE,
         "parameter \"{}\" (id {}) was frozen by otr_engine_set_trainable and takes no gradient: "
         "leave it out, or thaw it before the window",
         owner_.declared.model.at(id).name, id);
  }
  return root;
}

otr_tensor Pass::slot(int64_t id) {
  const std::shared_lock lock(mutex_);
  require_open("otr_pass_get_slot");
  const layout::Parameter& root = target(id);
  void* place = nullptr;
  if (root.count > 0) owner_.health.on_device([&] { place = sink_->slot(root.root, stream_); });
  return tensor::make(place, owner_.declared.config.compute, owner_.declared.model.at(id).shape,
                      front().id());
}

void Pass::add_grad(int64_t id, const otr_tensor& grad, const Tag& tag, device::Stream stream) {
  const std::shared_lock lock(mutex_);
  require_open("otr_pass_add_grad");
  const layout::Parameter& root = target(id);
  const layout::Parameter& parameter = owner_.declared.model.at(id);
  const tensor::View view = view_of(grad, {"the gradient of", parameter.name});
  if (!std::ranges::equal(view.shape, parameter.shape)) {
    fail(OTR_E_SHAPE, "the gradient of \"{}\" has shape {}; the parameter has {}", parameter.name,
         tensor::text_of(view.shape), tensor::text_of(parameter.shape));
  }
  const double factor = tag.loss_scale == 0 ? 1 : owner_.window.factor_for(tag);
  if (root.count == 0) return;
  owner_.window.note_stream(stream);
  owner_.health.on_device(
      [&] { sink_->add(root.root, {view, static_cast<float>(factor), stream}); });
}

void Pass::end() {
  const std::unique_lock lock(mutex_);
  require_open("otr_pass_end");
  open_ = false;
  // The last use of the engine: once no pass is open, its handle's destroy ends it.
  const std::shared_ptr<void> closed(nullptr, [this](void*) { owner_.window.end_pass(); });
  owner_.health.on_device([&] { sink_->end(false); });
  observe::Timeline& timeline = owner_.declared.timeline;
  if (began_ != 0) timeline.add(observe::Phase::backward, began_, observe::now());
  try {
    owner_.window.reducer().check();
  } catch (...) {
    owner_.health.poison_with_current();
    throw;
  }
}

void Pass::abandon() noexcept {
  const std::unique_lock lock(mutex_);
  if (!open_) return;
  open_ = false;
  try {
    sink_->end(true);
  } catch (...) {
    owner_.health.poison_with_current();
  }
  owner_.window.end_pass();
}

}  // namespace outrigger::engine
