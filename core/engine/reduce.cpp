// SPDX-License-Identifier: Apache-2.0
#include "core/engine/reduce.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/device/decider.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

Reducer::Reducer(const ReduceContext& context, std::unique_ptr<comm::Exchange> exchange)
    : context_(context),
      exchange_(std::move(exchange)),
      staging_charge_(*context.ledger, Purpose::buckets, context.side->gradient_staging),
      received_charge_(*context.ledger, Purpose::buckets, context.side->received,
                       memory::Space::host, memory::Touch::later),
      device_charge_(*context.ledger, Purpose::buckets, context.side->received_on_device,
                     memory::Space::device),
      present_(static_cast<size_t>(context.model->size()), 0),
      norms_(context.layout->buckets().size()) {}

std::shared_ptr<comm::Window> Reducer::make_window(int64_t bytes, Purpose purpose,
                                                   const char* label, Entered& entered) {
  auto window =
      exchange_->create_window(comm::WindowKind::per_rank, static_cast<size_t>(bytes), label);
  entered.charge = memory::Charge(*context_.ledger, purpose, bytes, context_.side->back);
  if (back().is_host() && bytes > 0) {
    entered.note = memory::PageNote(*context_.ledger,
                                    {window->block(context_.rank), static_cast<size_t>(bytes)});
  }
  return window;
}

Reducer::~Reducer() { let_go(whole_); }

void Reducer::let_go(std::shared_ptr<comm::Window>& window) const noexcept {
  if (!window || !front().is_host()) return;
  window->give_back();
  context_.devices.shown->keep(std::move(window));
}

void Reducer::list_window(std::vector<Movable>& all, Purpose purpose,
                          const std::shared_ptr<comm::Window>& window, Entered& entered) const {
  if (!window || back().is_host()) return;
  add_movable(all, OTR_STATES_GRADIENTS, purpose, *window, context_.rank, *context_.ledger,
              entered.charge, false);
}

comm::Reduction Reducer::reduction(const layout::Bucket& bucket, const comm::Window& window,
                                   size_t offset, Format from, bool add, const char* label) {
  const layout::Piece slice = slice_of(bucket);
  const auto index = static_cast<size_t>(&bucket - context_.layout->buckets().data());
  std::byte* const sum = context_.sums == nullptr
                             ? nullptr
                             : context_.sums->data() + index * device::Decider::kSumBytes;
  return {{window,
           offset,
           static_cast<size_t>(slice.count) * kernels::size_of(from),
           back(),
           {{}, from, gradient(slice), context_.config->accumulator, add, slice.count, slice.flat},
           &norms_[index],
           &origin_,
           sum,
           context_.config->quantised_gradients},
          label};
}

Summed Reducer::finish() {
  if (!finishing_) {
    begin_sums();
    if (context_.config->stage == 0) begin_gather();
    finishing_ = true;
  }
  wait_idle();
  Summed summed{{}, origin_, discard_};
  for (const kernels::NormSum& norm : norms_) kernels::merge(summed.norm, norm);
  return summed;
}

// Every rank has its slices of the sums; all want all of them.
void Reducer::begin_gather() {
  const size_t size = kernels::size_of(context_.config->accumulator);
  for (const layout::Bucket& bucket : context_.buckets()) {
    exchange_->begin(comm::WindowGather{*whole_, static_cast<size_t>(bucket.begin) * size,
                                        static_cast<size_t>(bucket.slice) * size,
                                        "gather gradients"});
  }
}

void Reducer::clear() {
  std::fill(present_.begin(), present_.end(), uint8_t{0});
  std::fill(norms_.begin(), norms_.end(), kernels::NormSum{});
  origin_ = {};
  discard_ = false;
  finishing_ = false;
  on_clear();
}

Block Reducer::scratch_for(int64_t root, device::Stream stream) const {
  return {*context_.ledger, Purpose::scratch, bytes_of(context_.model->at(root).count, compute()),
          &front(),         stream,           context_.devices.shown};
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
  if (grad.format != compute()) {
    fail(OTR_E_DTYPE, "the slot of \"{}\" comes back as {}; it is {}", name,
         tensor::name_of(grad.format), tensor::name_of(compute()));
  }
}

void Reducer::deposit(void* destination, Format to, bool first, const Gradient& gradient,
                      device::Event& ready) {
  const device::Stream stream = gradient.stream;
  const int64_t count = gradient.view.count;
  front().wait(stream, ready);
  if (first && to == compute()) {
    front().read(destination, to, gradient.view, gradient.factor, stream);
  } else {
    with_rounded(gradient, [&](const void* values) {
      if (first) {
        front().convert(destination, to, values, compute(), 1, count, stream);
      } else {
        front().add(destination, to, values, compute(), count, stream);
      }
    });
  }
  ready = front().record(stream);
}

bool Reducer::is_rounded(const Gradient& gradient) const {
  const tensor::View& grad = gradient.view;
  return grad.contiguous && grad.format == compute() && gradient.factor == 1;
}

Block Reducer::rounded(const Gradient& gradient) const {
  Block copy(*context_.ledger, Purpose::scratch, bytes_of(gradient.view.count, compute()), &front(),
             gradient.stream);
  front().read(copy.data(), compute(), gradient.view, gradient.factor, gradient.stream);
  return copy;
}

device::Event Reducer::rescale(void* slot, const Gradient& gradient) const {
  if (gradient.factor != 1) {
    front().convert(slot, compute(), slot, compute(), gradient.factor, gradient.view.count,
                    gradient.stream);
  }
  return front().record(gradient.stream);
}

kernels::NormSum Reducer::norm() const {
  kernels::NormSum sum;
  const Format format = context_.config->accumulator;
  for (const layout::Bucket& bucket : context_.buckets()) {
    const layout::Piece slice = slice_of(bucket);
    kernels::merge(sum, back().norm(gradient(slice), format, slice.count, slice.flat));
  }
  return sum;
}

}  // namespace outrigger::engine
