// SPDX-License-Identifier: Apache-2.0
#include "core/engine/reduce.h"

#include <algorithm>

#include "core/context/error.h"
#include "core/engine/reduce_boundary.h"
#include "core/engine/reduce_micro_step.h"

namespace outrigger::engine {

void Reducer::clear() {
  std::fill(present_.begin(), present_.end(), uint8_t{0});
  on_clear();
}

memory::Block Reducer::scratch_for(int64_t root) const {
  const int64_t size = static_cast<int64_t>(kernels::size_of(context_.config->compute));
  return {*context_.ledger, memory::Purpose::scratch, context_.model->at(root).count * size};
}

void Reducer::slot_is_out(int64_t root) const {
  fail(OTR_E_STATE,
       "parameter \"{}\" has a slot out already: hand it back with otr_pass_add_grad first",
       context_.model->at(root).name);
}

void Reducer::check_slot(int64_t root, const tensor::View& grad) const {
  const std::string& name = context_.model->at(root).name;
  if (!grad.contiguous) {
    fail(OTR_E_SHAPE, "the slot of \"{}\" comes back with other strides; it is row-major", name);
  }
  if (grad.format != context_.config->compute) {
    fail(OTR_E_DTYPE, "the slot of \"{}\" comes back as {}; it is {}", name,
         tensor::name_of(grad.format), tensor::name_of(context_.config->compute));
  }
}

void Reducer::deposit(void* destination, kernels::Format to, bool first, const tensor::View& grad,
                      float factor) {
  const kernels::Format compute = context_.config->compute;
  if (first && to == compute) {
    tensor::read(destination, to, grad, factor);
    return;
  }
  const void* source = grad.data;
  memory::Block rounded;
  if (!grad.contiguous || grad.format != compute || factor != 1) {
    rounded = memory::Block(*context_.ledger, memory::Purpose::scratch,
                            grad.count * static_cast<int64_t>(kernels::size_of(compute)));
    tensor::read(rounded.data(), compute, grad, factor);
    source = rounded.data();
  }
  if (first) {
    kernels::convert(destination, to, source, compute, grad.count);
  } else {
    kernels::add(destination, to, source, compute, grad.count);
  }
}

void Reducer::rescale(void* slot, int64_t count, float factor) const {
  const kernels::Format compute = context_.config->compute;
  if (factor != 1) kernels::scale(slot, compute, slot, compute, factor, count);
}

kernels::NormSum Reducer::norm() const {
  kernels::NormSum sum;
  const kernels::Format format = context_.config->accumulator;
  for (const layout::Bucket& bucket : context_.layout->buckets()) {
    const int64_t flat = bucket.begin + context_.rank * bucket.slice;
    const layout::Piece slice{-1, 0, bucket.slice, flat, bucket.shard};
    kernels::merge(sum, norm_of(*context_.workers, gradient(slice), format, bucket.slice, flat));
  }
  return sum;
}

std::unique_ptr<Reducer> make_reducer(const ReduceContext& context,
                                      std::unique_ptr<comm::Communicator> comm) {
  if (context.config->order == config::Order::boundary) {
    return std::make_unique<BoundaryReducer>(context, std::move(comm));
  }
  return std::make_unique<MicroStepReducer>(context, std::move(comm));
}

}  // namespace outrigger::engine
