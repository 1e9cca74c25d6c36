// SPDX-License-Identifier: Apache-2.0
#include "core/message/elements.h"

#include <array>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

namespace outrigger::message {
namespace {

using checkpoint::Dtype;

struct Known {
  Dtype dtype;
  otr_dtype code;
};
constexpr std::array<Known, 13> kKnown{{
    {Dtype::boolean, {OTR_DTYPE_BOOL, 8, 1}},
    {Dtype::i8, {OTR_DTYPE_INT, 8, 1}},
    {Dtype::i16, {OTR_DTYPE_INT, 16, 1}},
    {Dtype::i32, {OTR_DTYPE_INT, 32, 1}},
    {Dtype::i64, {OTR_DTYPE_INT, 64, 1}},
    {Dtype::u8, {OTR_DTYPE_UINT, 8, 1}},
    {Dtype::u16, {OTR_DTYPE_UINT, 16, 1}},
    {Dtype::u32, {OTR_DTYPE_UINT, 32, 1}},
    {Dtype::u64, {OTR_DTYPE_UINT, 64, 1}},
    {Dtype::f16, {OTR_DTYPE_FLOAT, 16, 1}},
    {Dtype::f32, {OTR_DTYPE_FLOAT, 32, 1}},
    {Dtype::f64, {OTR_DTYPE_FLOAT, 64, 1}},
    {Dtype::bf16, {OTR_DTYPE_BFLOAT, 16, 1}},
}};
constexpr std::string_view kLegal =
    "bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32 and float64";

int64_t stride_of(const otr_tensor& view, int32_t d) {
  if (view.strides != nullptr) return view.strides[d];
  int64_t stride = 1;
  for (int32_t inner = d + 1; inner < view.ndim; ++inner) stride *= view.shape[inner];
  return stride;
}

template <size_t kBytes>
void copy_strided(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * kBytes,
                from + i * stride * static_cast<int64_t>(kBytes), kBytes);
  }
}

void copy_row(const std::byte* from, int64_t stride, int64_t count, int64_t bytes, std::byte* to) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
  } else if (bytes == 1) {
    copy_strided<1>(from, stride, count, to);
  } else if (bytes == 2) {
    copy_strided<2>(from, stride, count, to);
  } else if (bytes == 4) {
    copy_strided<4>(from, stride, count, to);
  } else {
    copy_strided<8>(from, stride, count, to);
  }
}

}  // namespace

Dtype dtype_of(const otr_dtype& dtype, std::string_view what) {
  for (const Known& known : kKnown) {
    if (tensor::is_same(known.code, dtype)) return known.dtype;
  }
  fail(OTR_E_DTYPE, "{} has dtype {}; a message carries {}", what, tensor::text_of(dtype), kLegal);
}

otr_dtype dtype_of(Dtype dtype, std::string_view what) {
  for (const Known& known : kKnown) {
    if (known.dtype == dtype) return known.code;
  }
  fail(OTR_E_DTYPE, "{} has dtype {}; a message carries {}", what, name_of(dtype), kLegal);
}

void require_view(const otr_tensor& view, std::string_view what) {
  if (view.device.device_type != OTR_DEVICE_CPU) {
    fail(OTR_E_DEVICE,
         "{} is on device {} of type {}; a message is made on the CPU: copy it there first "
         "(otr_tensor_copy)",
         what, view.device.device_id, view.device.device_type);
  }
  if (view.ndim < 0 || view.ndim > 64) {
    fail(OTR_E_SHAPE, "{} has ndim {}; legal is 0 to 64", what, view.ndim);
  }
  if (view.ndim > 0 && view.shape == nullptr) {
    fail(OTR_E_ARGUMENT, "{} has ndim {} but its shape is NULL", what, view.ndim);
  }
  static_cast<void>(tensor::count_of(shape_of(view), what));
  static_cast<void>(dtype_of(view.dtype, what));
}

std::span<const int64_t> shape_of(const otr_tensor& view) {
  return {view.shape, static_cast<size_t>(view.ndim)};
}

bool is_row_major(const otr_tensor& view) {
  int64_t expected = 1;
  for (int32_t d = view.ndim; view.strides != nullptr && d-- > 0;) {
    if (view.shape[d] != 1 && view.strides[d] != expected) return false;
    expected *= view.shape[d];
  }
  return true;
}

bool overlaps(const otr_tensor& view, std::span<const std::byte> memory) {
  if (view.data == nullptr || tensor::count_of(shape_of(view), "a tensor") == 0) return false;
  int64_t first = 0, last = 0;  // in elements from the one at index 0
  for (int32_t d = 0; d < view.ndim; ++d) {
    const int64_t reach = (view.shape[d] - 1) * stride_of(view, d);
    (reach < 0 ? first : last) += reach;
  }
  const int64_t bytes = view.dtype.bits / 8;
  const auto at = reinterpret_cast<uintptr_t>(view.data) + view.byte_offset;
  const auto begin = at + static_cast<uintptr_t>(first * bytes);
  const auto end = at + static_cast<uintptr_t>((last + 1) * bytes);
  const auto memory_begin = reinterpret_cast<uintptr_t>(memory.data());
  return begin < memory_begin + memory.size() && memory_begin < end;
}

void copy_row_major(const otr_tensor& view, std::byte* to) {
  const auto* from = static_cast<const std::byte*>(view.data) + view.byte_offset;
  const int64_t bytes = view.dtype.bits / 8, count = tensor::count_of(shape_of(view), "a tensor");
  if (count == 0) return;
  if (view.ndim == 0 || is_row_major(view)) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
    return;
  }
  const int32_t inner = view.ndim - 1;
  const int64_t row = view.shape[inner];
  std::vector<int64_t> index(static_cast<size_t>(inner), 0);
  for (int64_t done = 0; done < count; done += row) {
    int64_t offset = 0;
    for (int32_t d = 0; d < inner; ++d) {
      offset += index[static_cast<size_t>(d)] * stride_of(view, d);
    }
    copy_row(from + offset * bytes, stride_of(view, inner), row, bytes, to + done * bytes);
    for (int32_t d = inner; d-- > 0;) {
      if (++index[static_cast<size_t>(d)] < view.shape[d]) break;
      index[static_cast<size_t>(d)] = 0;
    }
  }
}

}  // namespace outrigger::message
