// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/tensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/base/text.h"
#include "tests/fuzz/api/trace.h"

namespace otr_fuzz {

const char* const kDtypes[4] = {"float32", "bfloat16", "float16", "float64"};

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

otr_dtype dtype_named(const char* name) {
  const std::string_view dtype = name;
  if (dtype == "bfloat16") return {OTR_DTYPE_BFLOAT, 16, 1};
  return {OTR_DTYPE_FLOAT,
          static_cast<uint8_t>(dtype == "float64"   ? 64
                               : dtype == "float16" ? 16
                                                    : 32),
          1};
}

Shape draw_shape(Bytes& bytes) {
  switch (bytes.below(16)) {
    case 0:
      return {};
    case 1:
      return {0};
    case 2:
      return {3, 0, 2};
    case 3:
      return {1};
    case 4:
      return {256};
    case 5:
      return {2, 257};
    case 6:
      return {1, 1, 5, 1};
    case 7:
      return {1 + static_cast<int64_t>(bytes.below(3000))};
    case 8:  // from a mebibyte on a block has pages of its own
      return {bytes.one_in(8) ? 300000 : 513};
    case 9:
      return Shape(bytes.one_in(8) ? 64 : 8, 1);
    default:
      return {1 + static_cast<int64_t>(bytes.below(9)), 1 + static_cast<int64_t>(bytes.below(40))};
  }
}

std::vector<uint8_t> draw_values(Bytes& bytes, const otr_tensor& t, bool wild) {
  int64_t count = 1;
  for (int32_t d = 0; d < t.ndim; ++d) count *= t.shape[d];
  const uint32_t start = bytes.byte(), odd = bytes.byte();
  const bool bfloat = t.dtype.code == OTR_DTYPE_BFLOAT;
  std::vector<uint8_t> values(static_cast<size_t>(count) * (t.dtype.bits / 8U));
  uint8_t* at = values.data();
  for (int64_t i = 0; i < count; ++i, at += t.dtype.bits / 8) {
    const uint32_t step = (start + static_cast<uint32_t>(i) * 7) % 17;
    double value = (static_cast<double>(step) - 8) / 8;
    if (wild && (static_cast<uint32_t>(i) + odd) % 61 == 0) {
      constexpr double kOdd[] = {std::numeric_limits<double>::infinity(), NAN, 3e38, 1e-42, -65504};
      value = kOdd[odd % std::size(kOdd)];
    }
    const auto single = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &single, 4);
    if (t.dtype.bits == 64) {
      std::memcpy(at, &value, 8);
    } else if (t.dtype.bits == 32) {
      std::memcpy(at, &bits, 4);
    } else if (bfloat) {
      std::memcpy(at, reinterpret_cast<const uint8_t*>(&bits) + 2, 2);
    } else {  // float16: multiples of 1/8 below 2, and a few patterns
      constexpr uint16_t kPatterns[] = {0x7c00, 0x7e00, 0x7bff, 0x0001, 0xfbff};
      constexpr uint16_t kEighths[] = {0x0000, 0x3000, 0x3400, 0x3600, 0x3800,
                                       0x3900, 0x3a00, 0x3b00, 0x3c00};
      const bool usual = std::abs(value) <= 1 && std::isfinite(value) && std::abs(value) > 1e-3;
      const auto eighths = static_cast<size_t>(usual ? std::abs(value) * 8 : 0);
      uint16_t half = usual ? kEighths[eighths] : uint16_t{0};
      if (value < 0) half = static_cast<uint16_t>(half | 0x8000);
      if (wild && !usual && value != 0) half = kPatterns[odd % std::size(kPatterns)];
      std::memcpy(at, &half, 2);
    }
  }
  return values;
}

void fill(Bytes& bytes, Where where, const otr_tensor& t, bool wild) {
  put(where, t, draw_values(bytes, t, wild));
}

Sample make_sample(Bytes& bytes, Where where, const Shape& shape, const char* dtype) {
  Sample s;
  s.shape = std::make_shared<Shape>(shape);
  s.tensor.dtype = dtype_named(dtype);
  s.memory = std::make_shared<Memory>(
      where, static_cast<size_t>(count_of(shape)) * (s.tensor.dtype.bits / 8U));
  s.tensor.data = s.memory->data();
  s.tensor.device = where == nullptr ? otr_device{OTR_DEVICE_CPU, 0} : where->id();
  s.tensor.ndim = static_cast<int32_t>(shape.size());
  s.tensor.shape = shape.empty() ? nullptr : s.shape->data();
  fill(bytes, where, s.tensor, bytes.one_in(16));
  return s;
}

Sample draw_sample(Bytes& bytes, Where where, const Shape& shape, Use use) {
  const char* dtype = bytes.one_in(2) ? kDtypes[0] : bytes.pick(kDtypes);
  const uint32_t form = bytes.below(8);
  if (form < 4 || shape.empty() || count_of(shape) == 0) {
    return make_sample(bytes, where, shape, dtype);
  }
  // Memory for every second element of each dimension, so that strides have room.
  Shape roomy = shape;
  for (int64_t& extent : roomy) extent *= shape.size() < 4 ? 2 : 1;
  Sample s = make_sample(bytes, where, roomy, dtype);
  s.strides = std::make_shared<Shape>(shape.size());
  s.shape = std::make_shared<Shape>(shape);
  s.tensor.shape = s.shape->data();
  s.tensor.strides = s.strides->data();
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  int64_t stride = 1;
  for (int64_t i = 0; i <= last; ++i) {
    const auto d = static_cast<size_t>(form == 5 ? i : last - i);  // 5: column-major
    (*s.strides)[d] = form == 7 && use != Use::output ? 0 : stride;
    stride *= form == 6 ? roomy[d] : shape[d];
  }
  if (form == 4) {  // backwards, from the last element
    for (int64_t& each : *s.strides) each = -each;
    s.tensor.byte_offset = static_cast<uint64_t>(count_of(shape) - 1) * (s.tensor.dtype.bits / 8U);
  }
  return s;
}

Sample draw_doubtful(Bytes& bytes, Where where, const Shape& shape, Use use) {
  if (!bytes.one_in(10)) return draw_sample(bytes, where, shape, use);
  const uint32_t fault = bytes.below(13);
  if (fault == 0) return draw_sample(bytes, where, draw_shape(bytes), use);
  if (fault == 12) return draw_sample(bytes, nullptr, shape, use);  // not on the device
  Sample s = draw_sample(bytes, where, shape, use);
  switch (fault) {
    case 1:
      s.tensor.dtype.code = OTR_DTYPE_INT;
      break;
    case 2:
      s.tensor.dtype.lanes = 4;
      break;
    case 3:
      s.tensor.dtype.bits = 8;
      break;
    case 4: {
      constexpr int32_t kTypes[] = {OTR_DEVICE_CUDA, OTR_DEVICE_CUDA_HOST, OTR_DEVICE_EXTENSION};
      s.tensor.device.device_type = bytes.pick(kTypes);
      break;
    }
    case 5:
      s.tensor.data = nullptr;
      break;
    case 6:
      s.tensor.ndim = bytes.one_in(2) ? -1 : 65;
      break;
    case 7:
      s.tensor.shape = nullptr;
      break;
    case 8:
      if (shape.empty()) break;
      (*s.shape)[0] = bytes.one_in(2) ? -3 : INT64_MAX;
      if (use == Use::declaration) s.tensor.data = nullptr;  // there is no memory for so many
      break;
    case 9:  // not at a multiple of its size: legal
      s.memory = std::make_shared<Memory>(where, s.memory->size() + 8);
      s.tensor.data = s.memory->data();
      s.tensor.byte_offset += 1;
      break;
    case 10:
      s.tensor.device.device_id = 3;
      break;
    default:
      s.tensor.dtype = {OTR_DTYPE_UINT, 32, 1};
  }
  return s;
}

void expect_at(Where where, const otr_tensor& t) {
  const otr_device due = where == nullptr ? otr_device{OTR_DEVICE_CPU, 0} : where->id();
  if (t.device.device_type != due.device_type || t.device.device_id != due.device_id) {
    broken(outrigger::format_text("the library gave a tensor on device {} of type {}",
                                  t.device.device_id, t.device.device_type));
  }
}

uint64_t touch(Where where, const otr_tensor& t) {
  expect_at(where, t);
  uint64_t sum = 0;
  for (const uint8_t byte : get(where, t)) sum += byte;
  return sum;
}

}  // namespace otr_fuzz
