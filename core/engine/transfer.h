// SPDX-License-Identifier: Apache-2.0
// Values between tensors, which are the host's or a device's, and an engine's memory.
#pragma once

#include "core/device/device.h"
#include "core/engine/declared.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

// All elements of the tensor as float32, in host memory.
void read_tensor(Declared& declared, const tensor::View& from, float* values);
// Of its elements [first, first + count).
void read_part(Declared& declared, const tensor::View& from, int64_t first, int64_t count,
               float* values);
// And back, from host memory: into a tensor of the host or of the device.
void write_tensor(Declared& declared, const tensor::View& to, const void* values,
                  kernels::Format format);
// A device's memory = values / factor, by way of host memory of the same format.
void put(memory::Ledger& ledger, device::Device& device, void* to, kernels::Format format,
         const float* values, int64_t count, double factor);

}  // namespace outrigger::engine
