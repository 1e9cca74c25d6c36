// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pass.h"

#include <algorithm>

#include "core/base/error.h"

namespace outrigger::engine {

std::shared_ptr<Pass> Engine::begin_pass(const otr_tensor* output_grads, int64_t count,
                                         const Tag& tag, bool keep_dtype, device::Stream stream) {
  require(State::committed, "otr_pass_begin");
  if (reduced_) {
    fail(OTR_E_STATE,
         "otr_pass_begin: otr_engine_reduce has closed this window; call otr_engine_step first");
  }
  check();
  return on_device([&] {
    return std::make_shared<Pass>(shared_from_this(), output_grads, count, tag, keep_dtype, stream);
  });
}

double Engine::factor_for(const Tag& tag) const {
  const double accumulation = config_.divide_at_step ? 1 : 1.0 / config_.accumulation_steps;
  if (tag.loss_scale == 0) return scaler_.scale() * accumulation;
  if (tag.accumulation > 0 && config_.divide_at_step) {
    fail(
        OTR_E_STATE,
        "these gradients were divided by {1} accumulation steps already, and this engine divides "
        "at the step (outrigger.accumulation_divisor \"{0}\"): use \"configured\" here, or \"{0}\" "
        "in the engine they come from, too",
        config_.divide_by_counted ? "counted" : "configured_at_step", tag.accumulation);
  }
  const double ranks = tag.ranks == 0 ? 1 : static_cast<double>(mean_ranks()) / tag.ranks;
  return scaler_.scale() / tag.loss_scale * (tag.accumulation > 0 ? 1 : accumulation) * ranks;
}

Pass::Pass(std::shared_ptr<Engine> engine, const otr_tensor* output_grads, int64_t count,
           const Tag& tag, bool keep_dtype, device::Stream stream)
    : engine_(std::move(engine)), scale_(engine_->factor_for(tag)), stream_(stream) {
  engine_->note_stream(stream);
  const int32_t own = engine_->config_.divide_at_step ? 0 : engine_->config_.accumulation_steps;
  tag_ = {engine_->scaler_.scale(), tag.accumulation > 0 ? tag.accumulation : own,
          engine_->mean_ranks()};
  for (int64_t i = 0; i < count; ++i) add_output(output_grads[i], keep_dtype);
  sink_ = engine_->reducer_->begin_pass();
  engine_->begin_training();
  if (seed_overflow_ >= 0) engine_->seed_overflow_ = true;
  ++engine_->open_passes_;
  ++engine_->passes_in_micro_step_;
  ++engine_->passes_in_window_;
  ++engine_->live_passes_;
}

void Pass::add_output(const otr_tensor& grad, bool keep_dtype) {
  using kernels::Format;
  const auto index = static_cast<int64_t>(outputs_.size());
  const tensor::View view = view_of(grad, format_text("output gradient {}", index));
  const bool keep = keep_dtype && view.format != Format::float64;
  Output output{view.shape, keep ? view.format : Format::float32, {}};
  const int64_t bytes = bytes_of(view.count, output.format);
  output.values = memory::Block(engine_->ledger_, memory::Purpose::outputs, bytes, &front());
  front().read(output.values.data(), output.format, view, static_cast<float>(scale_), stream_);
  if (scale_ > 1 && seed_overflow_ < 0 && overflows(output, view)) {
    seed_overflow_ = index;
    engine_->context_->log(
        OTR_LOG_WARNING,
        format_text("output gradient {} is finite, but not in {} after it is multiplied by {} "
                    "(loss scale {}): this window will be skipped",
                    index, tensor::name_of(output.format), scale_, engine_->scaler_.scale()));
  }
  outputs_.push_back(std::move(output));
}

tensor::View Pass::view_of(const otr_tensor& t, const std::string& what) const {
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
  const memory::Block unscaled(engine_->ledger_, memory::Purpose::scratch,
                               bytes_of(given.count, output.format), &front());
  front().read(unscaled.data(), output.format, given, 1, stream_);
  return nonfinite(unscaled) < scaled;
}

Pass::~Pass() {
  abandon();
  --engine_->live_passes_;
}

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
  engine_->on_device([&] {
    const memory::Block values(engine_->ledger_, memory::Purpose::scratch, source.count * 4,
                               &front());
    const double factor = std::max(1, tag_.accumulation) / tag_.loss_scale;
    front().read(values.data(), kernels::Format::float32, source, static_cast<float>(factor),
                 stream_);
    front().write(target, values.data(), kernels::Format::float32, stream_);
  });
}

const layout::Parameter& Pass::target(int64_t id) const {
  const layout::Parameter& root = engine_->model_.root(id);
  if (!root.trainable) {
    fail(OTR_E_STATE,
         "parameter \"{}\" (id {}) is frozen and takes no gradient: leave it out, or declare it "
         "with trainable = 1",
         engine_->model_.at(id).name, id);
  }
  if (root.frozen) {
    fail(OTR_E_STATE,
         "parameter \"{}\" (id {}) was frozen by otr_engine_set_trainable and takes no gradient: "
         "leave it out, or thaw it before the window",
         engine_->model_.at(id).name, id);
  }
  return root;
}

otr_tensor Pass::slot(int64_t id) {
  const std::shared_lock lock(mutex_);
  require_open("otr_pass_get_slot");
  const layout::Parameter& root = target(id);
  void* place = nullptr;
  if (root.count > 0) engine_->on_device([&] { place = sink_->slot(root.root); });
  return tensor::make(place, engine_->config_.compute, engine_->model_.at(id).shape, front().id());
}

void Pass::add_grad(int64_t id, const otr_tensor& grad, const Tag& tag, device::Stream stream) {
  const std::shared_lock lock(mutex_);
  require_open("otr_pass_add_grad");
  const layout::Parameter& root = target(id);
  const layout::Parameter& parameter = engine_->model_.at(id);
  const tensor::View view = view_of(grad, format_text("the gradient of \"{}\"", parameter.name));
  if (view.shape != parameter.shape) {
    fail(OTR_E_SHAPE, "the gradient of \"{}\" has shape {}; the parameter has {}", parameter.name,
         tensor::text_of(view.shape), tensor::text_of(parameter.shape));
  }
  const double factor = tag.loss_scale == 0 ? 1 : engine_->factor_for(tag);
  if (root.count == 0) return;
  engine_->note_stream(stream);
  engine_->on_device([&] { sink_->add(root.root, {view, static_cast<float>(factor), stream}); });
}

void Pass::end() {
  const std::unique_lock lock(mutex_);
  require_open("otr_pass_end");
  open_ = false;
  // The last use of the engine: once no pass is open, its handle's destroy ends it.
  const std::shared_ptr<void> closed(nullptr, [this](void*) { --engine_->open_passes_; });
  engine_->on_device([&] { sink_->end(false); });
  try {
    engine_->reducer_->check();
  } catch (...) {
    engine_->poison_with_current();
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
    engine_->poison_with_current();
  }
  --engine_->open_passes_;
}

}  // namespace outrigger::engine
