// SPDX-License-Identifier: Apache-2.0
#include "core/engine/reducers.h"

#include <exception>
#include <utility>

#include "core/comm/staged.h"
#include "core/engine/reduce_boundary.h"
#include "core/engine/reduce_micro_step.h"

namespace outrigger::engine {
namespace {

std::unique_ptr<Reducer> make_reducer(const ReduceContext& context,
                                      std::unique_ptr<comm::Communicator> comm) {
  if (!context.back().is_host()) {
    device::Device& device = context.back();
    const auto received = static_cast<size_t>(context.side->received_on_device);
    const comm::Sums sums = context.config->library_sums ? comm::Sums::library : comm::Sums::ranked;
    comm = context.direct
               ? comm::make_direct(std::move(comm), context.direct, sums, received)
               : comm::make_staged(std::move(comm), device, *context.devices.host,
                                   memory::page_lock(device, *context.ledger, context.config->pin),
                                   static_cast<size_t>(context.side->gradient_staging), received);
  }
  constexpr const char* kName = "the reduction of gradients";
  const comm::Observed observed{context.timeline, observe::Phase::sums};
  if (context.config->order == config::Order::boundary) {
    return std::make_unique<BoundaryReducer>(
        context, comm::make_inline_exchange(std::move(comm), kName, observed));
  }
  return std::make_unique<MicroStepReducer>(
      context, comm::make_blocking_exchange(std::move(comm), kName, observed));
}

}  // namespace

Reducers::Reducers(const ReduceContext& context, const Plan& plan,
                   std::unique_ptr<comm::Communicator> comm)
    : plan_(plan) {
  for (const Side& side : plan.sides) {
    const bool last = &side == &plan.sides.back();
    ReduceContext own = context;
    own.side = &side;
    all_.push_back(make_reducer(own, last ? std::move(comm) : comm->duplicate("gradients")));
  }
}

class Reducers::Sink final : public GradientSink {
 public:
  explicit Sink(Reducers& reducers) : reducers_(reducers) {
    for (const auto& reducer : reducers.all_) sinks_.push_back(reducer->begin_pass());
  }
  void* slot(int64_t root, device::Stream stream) override { return of(root).slot(root, stream); }
  void add(int64_t root, const Gradient& gradient) override { of(root).add(root, gradient); }
  void end(bool abandoned) override {  // all of them, whatever becomes of one
    std::exception_ptr failure;
    for (const auto& sink : sinks_) {
      try {
        sink->end(abandoned);
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  [[nodiscard]] GradientSink& of(int64_t root) {
    const Plan& plan = reducers_.plan_;
    return *sinks_[static_cast<size_t>(&plan.side_of(root) - plan.sides.data())];
  }
  Reducers& reducers_;
  std::vector<std::unique_ptr<GradientSink>> sinks_;
};

std::unique_ptr<GradientSink> Reducers::begin_pass() {
  if (all_.size() == 1) return all_.front()->begin_pass();
  return std::make_unique<Sink>(*this);
}

Summed Reducers::finish() {
  Summed summed;
  for (const auto& reducer : all_) {
    const Summed own = reducer->finish();
    kernels::merge(summed.norm, own.norm);
    device::keep_first(summed.origin, own.origin);
    summed.discard = summed.discard || own.discard;
  }
  return summed;
}

kernels::NormSum Reducers::norm() const {
  kernels::NormSum sum;
  for (const auto& reducer : all_) kernels::merge(sum, reducer->norm());
  return sum;
}

void Reducers::clear() {
  for (const auto& reducer : all_) reducer->clear();
}
void Reducers::check() {
  for (const auto& reducer : all_) reducer->check();
}
void Reducers::wait_idle() {
  for (const auto& reducer : all_) reducer->wait_idle();
}
void Reducers::give_up(int32_t culprit) noexcept {
  for (const auto& reducer : all_) reducer->give_up(culprit);
}
void Reducers::stop() noexcept {
  for (const auto& reducer : all_) reducer->stop();
}
void Reducers::list_movable(std::vector<Movable>& all) {
  for (const auto& reducer : all_) reducer->list_movable(all);
}

}  // namespace outrigger::engine
