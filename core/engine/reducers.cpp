// SPDX-License-Identifier: Apache-2.0
#include "core/engine/reducers.h"

#include "core/comm/staged.h"
#include "core/engine/reduce_boundary.h"
#include "core/engine/reduce_micro_step.h"

namespace outrigger::engine {

std::unique_ptr<Reducer> make_reducer(const ReduceContext& context,
                                      std::unique_ptr<comm::Communicator> comm) {
  if (!context.devices.back->is_host()) {
    device::Device& device = *context.devices.back;
    comm = comm::make_staged(std::move(comm), device, *context.host,
                             memory::page_lock(device, *context.ledger, context.config->pin),
                             static_cast<size_t>(context.plan->gradient_staging),
                             static_cast<size_t>(context.plan->received_on_device));
  }
  constexpr const char* kName = "the reduction of gradients";
  if (context.config->order == config::Order::boundary) {
    return std::make_unique<BoundaryReducer>(context,
                                             comm::make_inline_exchange(std::move(comm), kName));
  }
  return std::make_unique<MicroStepReducer>(context,
                                            comm::make_blocking_exchange(std::move(comm), kName));
}

}  // namespace outrigger::engine
