// SPDX-License-Identifier: Apache-2.0
// One backward pass: scaled gradients of the outputs to the host, gradients of the parameters from
// it.
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include "core/engine/engine.h"

namespace outrigger::engine {

class Pass {
 public:
  // Copies the outputs' gradients, multiplied by the engine's scale.
  Pass(std::shared_ptr<Engine> engine, const otr_tensor* output_grads, int64_t count);
  ~Pass();  // a pass that was not ended is abandoned
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  [[nodiscard]] otr_tensor output_grad(int64_t index) const;
  [[nodiscard]] double scale() const { return scale_; }
  otr_tensor slot(int64_t id);                        // any thread
  void add_grad(int64_t id, const otr_tensor& grad);  // any thread
  void end();
  void abandon() noexcept;

 private:
  struct Output {
    std::vector<int64_t> shape;
    memory::Block values;  // float32
  };
  void require_open(const char* call) const;
  // The root that takes this id's gradient; throws for frozen parameters.
  [[nodiscard]] const layout::Parameter& target(int64_t id) const;

  std::shared_ptr<Engine> engine_;
  double scale_;
  std::vector<Output> outputs_;
  mutable std::shared_mutex mutex_;  // shared: slots and gradients; unique: the end
  bool open_ = true;                 // guarded by mutex_
};

}  // namespace outrigger::engine
