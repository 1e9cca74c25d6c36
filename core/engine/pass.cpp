// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pass.h"

#include "core/context/error.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

std::shared_ptr<Pass> Engine::begin_pass(const otr_tensor* output_grads, int64_t count) {
  require(State::committed, "otr_pass_begin");
  require_no_pass("otr_pass_begin");
  check();
  auto pass = std::make_shared<Pass>(shared_from_this(), output_grads, count);
  return pass;
}

Pass::Pass(std::shared_ptr<Engine> engine, const otr_tensor* output_grads, int64_t count)
    : engine_(std::move(engine)), scale_(1.0 / engine_->config_.accumulation_steps) {
  for (int64_t i = 0; i < count; ++i) {
    const tensor::View view = tensor::check(output_grads[i], fmt::format("output gradient {}", i));
    Output output{view.shape,
                  memory::Block(engine_->ledger_, memory::Purpose::outputs, view.count * 4)};
    tensor::read(output.values.data(), kernels::Format::float32, view, static_cast<float>(scale_));
    outputs_.push_back(std::move(output));
  }
  engine_->reducer_->begin_pass();
  engine_->pass_open_ = true;
  ++engine_->passes_in_micro_step_;
  ++engine_->passes_in_window_;
  ++engine_->live_passes_;
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
  return tensor::make(output.values.data(), kernels::Format::float32, output.shape);
}

const layout::Parameter& Pass::target(int64_t id) const {
  const layout::Parameter& root = engine_->model_.root(id);
  if (!root.trainable) {
    fail(OTR_E_STATE,
         "parameter \"{}\" (id {}) is frozen and takes no gradient: leave it out, or declare it "
         "with trainable = 1",
         engine_->model_.at(id).name, id);
  }
  return root;
}

otr_tensor Pass::slot(int64_t id) {
  const std::shared_lock lock(mutex_);
  require_open("otr_pass_get_slot");
  const layout::Parameter& root = target(id);
  void* place = root.count == 0 ? nullptr : engine_->reducer_->slot(root.root);
  return tensor::make(place, engine_->config_.compute, engine_->model_.at(id).shape);
}

void Pass::add_grad(int64_t id, const otr_tensor& grad) {
  const std::shared_lock lock(mutex_);
  require_open("otr_pass_add_grad");
  const layout::Parameter& root = target(id);
  const layout::Parameter& parameter = engine_->model_.at(id);
  const tensor::View view =
      tensor::check(grad, fmt::format("the gradient of \"{}\"", parameter.name));
  if (view.shape != parameter.shape) {
    fail(OTR_E_SHAPE, "the gradient of \"{}\" has shape {}; the parameter has {}", parameter.name,
         tensor::text_of(view.shape), tensor::text_of(parameter.shape));
  }
  if (root.count > 0) engine_->reducer_->add(root.root, view);
}

void Pass::end() {
  const std::unique_lock lock(mutex_);
  require_open("otr_pass_end");
  open_ = false;
  engine_->reducer_->end_pass(false);
  // The last use of the engine: once no pass is open, its handle's destroy ends it.
  const std::shared_ptr<void> closed(nullptr, [this](void*) { engine_->pass_open_ = false; });
  engine_->reducer_->check();
}

void Pass::abandon() noexcept {
  const std::unique_lock lock(mutex_);
  if (!open_) return;
  open_ = false;
  try {
    engine_->reducer_->end_pass(true);
  } catch (const std::exception& error) {
    engine_->poison(Error(OTR_E_INTERNAL, error.what()));
  }
  engine_->pass_open_ = false;
}

}  // namespace outrigger::engine
