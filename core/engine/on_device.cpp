// SPDX-License-Identifier: Apache-2.0
// An engine on a device: its host's streams, and values on their way between the two memories.
#include "core/engine/engine.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

// Calls that name no stream come after what the host gave to its default one.
constexpr device::Stream kDefault = 0;

}  // namespace

void Engine::set_device(const otr_device& device) {
  require(State::declared, "otr_engine_set_device");
  if (hyperparameters_set_) {
    fail(OTR_E_STATE,
         "otr_engine_set_device: a hyperparameter was set already; choose the device right after "
         "otr_engine_create");
  }
  if (model_.size() > 0) {
    fail(OTR_E_STATE,
         "otr_engine_set_device: {} parameters are declared already; choose the device before the "
         "first",
         model_.size());
  }
  const bool host = device.device_type == OTR_DEVICE_CPU;
  std::shared_ptr<device::Device> opened = host ? nullptr : context_->devices().open(device);
  // Which precisions need offload depends on where the parameters are.
  config_ = config::parse_engine(config_json_, comm_->size(),
                                 host ? config::EngineKind::cpu : config::EngineKind::device);
  groups_ = {config_.optimizer};
  device_ = std::move(opened);
}

void Engine::note_stream(device::Stream stream) {
  if (!device_) return;
  const std::lock_guard lock(stream_mutex_);
  if (callers_streams_.contains(stream)) return;
  static_cast<void>(device_->record(stream));  // throws for a stream that there is not
  callers_streams_.insert(stream);
}

void Engine::await_streams() {
  if (!device_) return;
  const std::lock_guard lock(stream_mutex_);
  for (const device::Stream stream : callers_streams_) {
    device_->wait(device_->own_stream(), device_->record(stream));
  }
  callers_streams_.clear();
}

// Before host memory is freed that the device may still be copying from or to.
void Engine::drain() noexcept {
  if (device_) device_->drain();
}

void Engine::read_tensor(const tensor::View& from, float* values) {
  if (from.on_host) {
    tensor::read(values, Format::float32, from);
    return;
  }
  const Block wide(ledger_, Purpose::acquired, from.count * 4, device_.get());
  device_->read(wide.data(), Format::float32, from, 1, kDefault);
  device_->download(values, wide.data(), static_cast<size_t>(from.count) * 4, kDefault);
  device_->synchronize(kDefault);
}

void Engine::write_tensor(const tensor::View& to, const void* values, Format format) {
  if (to.on_host) {
    tensor::write(to, values, format);
    return;
  }
  const int64_t bytes = bytes_of(to.count, format);
  const Block there(ledger_, Purpose::acquired, bytes, device_.get());
  device_->upload(there.data(), values, static_cast<size_t>(bytes), kDefault);
  device_->write(to, there.data(), format, kDefault);
  device_->synchronize(kDefault);
}

// A device's memory = values / factor, by way of host memory of the same format.
void Engine::put(device::Device& device, void* to, Format format, const float* values,
                 int64_t count, double factor) {
  const bool direct = device.is_host();
  const Block rounded(ledger_, Purpose::acquired, direct ? 0 : bytes_of(count, format));
  void* const target = direct ? to : rounded.data();
  const auto inverse = static_cast<float>(1 / factor);
  if (inverse == 1) {
    kernels::convert(target, format, values, Format::float32, count);
  } else {
    kernels::scale(target, format, values, Format::float32, inverse, count);
  }
  if (!direct) device.upload_now(to, target, static_cast<size_t>(bytes_of(count, format)));
}

}  // namespace outrigger::engine
