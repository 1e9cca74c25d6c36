// SPDX-License-Identifier: Apache-2.0
// One backward pass: scaled gradients of the outputs to the host, gradients of the parameters from
// it. See Window for when passes come and what becomes of their gradients.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/engine/health.h"
#include "core/engine/window.h"

namespace outrigger::engine {

class Pass {
 public:
  // What a pass works on. An open pass keeps all of it; one that has ended, the declarations.
  struct Owner {
    std::shared_ptr<void> engine;  // keeps the others
    Declared& declared;
    Health& health;
    Window& window;
    std::shared_ptr<const int> count;  // the engine counts its copies
  };

  // Copies the outputs' gradients, multiplied by the engine's scale. keep_dtype: in their own dtype
  // instead of float32.
  // stream: in whose order they are ready, and the pass's gradients are used.
  Pass(Owner owner, const otr_tensor* output_grads, int64_t count, const Tag& tag, bool keep_dtype,
       device::Stream stream);
  ~Pass();  // a pass that was not ended is abandoned
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  [[nodiscard]] int64_t outputs() const { return static_cast<int64_t>(outputs_.size()); }
  [[nodiscard]] otr_tensor output_grad(int64_t index) const;
  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] bool on_host() const { return front().is_host(); }
  // Of the gradients that come out of this pass.
  [[nodiscard]] const Tag& tag() const { return tag_; }
  // The first output whose finite gradient is not finite any more once scaled; −1: none.
  [[nodiscard]] int64_t seed_overflow() const { return seed_overflow_; }
  // to = from without all that it carries, also what a tag brought along.
  void unscale(const otr_tensor& from, const otr_tensor& to) const;
  otr_tensor slot(int64_t id);  // any thread
  void add_grad(int64_t id, const otr_tensor& grad, const Tag& tag,
                device::Stream stream);  // any thread
  void end();
  void abandon() noexcept;

 private:
  struct Output {
    tensor::Extents shape;
    kernels::Format format;
    memory::Block values;
  };
  void add_output(const otr_tensor& grad, bool keep_dtype);
  [[nodiscard]] device::Device& front() const { return owner_.declared.front(); }
  // A tensor that is where the pass's are.
  [[nodiscard]] tensor::View view_of(const otr_tensor& t, const Subject& what) const;
  // Whether more elements of the output are not finite than would be without the scale.
  [[nodiscard]] bool overflows(const Output& output, const tensor::View& given) const;
  void require_open(const char* call) const;
  // The root that takes this id's gradient; throws for frozen parameters.
  [[nodiscard]] const layout::Parameter& target(int64_t id) const;

  const Owner owner_;
  Tag tag_;
  double scale_;
  device::Stream stream_;
  int64_t began_;  // observe::now, or 0 where nobody watches
  std::vector<Output> outputs_;
  int64_t seed_overflow_ = -1;
  std::unique_ptr<GradientSink> sink_;
  mutable std::shared_mutex mutex_;  // shared: slots and gradients; unique: the end
  bool open_ = true;                 // guarded by mutex_
};

}  // namespace outrigger::engine
