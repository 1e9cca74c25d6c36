// SPDX-License-Identifier: Apache-2.0
#include "core/engine/transfer.h"

namespace outrigger::engine {

using kernels::bytes_of;
using kernels::Format;
using memory::Block;
using memory::Purpose;

namespace {

// Calls that name no stream come after what the host gave to its default one.
constexpr device::Stream kDefault = 0;

}  // namespace

void read_tensor(memory::Ledger& ledger, device::Device& device, const tensor::View& from,
                 float* values) {
  if (from.on_host) {
    tensor::read(values, Format::float32, from);
    return;
  }
  const Block wide(ledger, Purpose::acquired, from.count * 4, &device);
  device.read(wide.data(), Format::float32, from, 1, kDefault);
  device.download(values, wide.data(), static_cast<size_t>(from.count) * 4, kDefault);
  device.synchronize(kDefault);
}

void read_part(memory::Ledger& ledger, device::Device& device, const tensor::View& from,
               int64_t first, int64_t count, float* values) {
  tensor::for_each_part(from, first, count, [&](const tensor::View& part, int64_t offset) {
    read_tensor(ledger, device, part, values + offset);
  });
}

void write_tensor(memory::Ledger& ledger, device::Device& device, const tensor::View& to,
                  const void* values, Format format) {
  if (to.on_host) {
    tensor::write(to, values, format);
    return;
  }
  const int64_t bytes = bytes_of(to.count, format);
  const Block there(ledger, Purpose::acquired, bytes, &device);
  device.upload(there.data(), values, static_cast<size_t>(bytes), kDefault);
  device.write(to, there.data(), format, kDefault);
  device.synchronize(kDefault);
}

const std::byte* on_host(memory::Ledger& ledger, device::Device& device, const std::byte* data,
                         int64_t bytes, Block& copy) {
  if (device.is_host()) return data;
  copy = Block(ledger, Purpose::acquired, bytes);
  device.download_now(copy.data(), data, static_cast<size_t>(bytes));
  return copy.data();
}

void put(memory::Ledger& ledger, device::Device& device, void* to, Format format,
         const float* values, int64_t count, double factor) {
  const bool direct = device.is_host();
  const Block rounded(ledger, Purpose::acquired, direct ? 0 : bytes_of(count, format));
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
