// SPDX-License-Identifier: Apache-2.0
// Tensors of any form, with memory behind all that they claim to have.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "outrigger.h"
#include "tests/fuzz/api/bytes.h"
#include "tests/fuzz/api/device.h"

namespace otr_fuzz {

using Shape = std::vector<int64_t>;

int64_t count_of(const Shape& shape);
Shape draw_shape(Bytes& bytes);

extern const char* const kDtypes[4];  // those that the library takes
otr_dtype dtype_named(const char* name);

// Movable: the tensor points into vectors. Its memory is given back with the last copy of it.
struct Sample {
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Shape> shape, strides;
  otr_tensor tensor{};
};

// Where a tensor is made: on this device, or (null) on the host.
using Where = const Device*;

// A row-major tensor of small values, some of them now and then Inf, NaN or huge.
Sample make_sample(Bytes& bytes, Where where, const Shape& shape, const char* dtype);

// What a call does with a tensor: it fills it; reads it, where strides may repeat elements; or
// takes its shape from it, too, whatever that is.
enum class Use : uint8_t { output, source, declaration };

// Of this shape, in a dtype and with strides that are drawn.
Sample draw_sample(Bytes& bytes, Where where, const Shape& shape, Use use);

// The same, but now and then not what a call can take: another shape, dtype or device, no data, a
// header that makes no sense.
Sample draw_doubtful(Bytes& bytes, Where where, const Shape& shape, Use use);

// Values of a small range that are exact in every dtype; wild: some Inf, NaN and huge ones.
std::vector<uint8_t> draw_values(Bytes& bytes, const otr_tensor& row_major, bool wild);

// Put into the tensor, which is on the host or on this device.
void fill(Bytes& bytes, Where where, const otr_tensor& row_major, bool wild);

// What the library gave is where it has to be.
void expect_at(Where where, const otr_tensor& tensor);

// And every byte can be read, as a sanitizer, or the device, sees.
uint64_t touch(Where where, const otr_tensor& tensor);

}  // namespace otr_fuzz
