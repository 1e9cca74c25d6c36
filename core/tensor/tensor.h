// SPDX-License-Identifier: Apache-2.0
// Views of the host's memory: checks, and strided copies from and to contiguous memory.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/text.h"
#include "kernels/kernels.h"
#include "outrigger.h"

namespace outrigger::tensor {

using kernels::Format;

// "float32", "bfloat16", "float16", "float64"
[[nodiscard]] std::string_view name_of(Format format);
[[nodiscard]] bool is_same(const otr_dtype& a, const otr_dtype& b);
// "int64", as frameworks name it.
[[nodiscard]] std::string text_of(const otr_dtype& dtype);
[[nodiscard]] otr_dtype dtype_of(Format format);
// Throws OTR_E_DTYPE naming `what` unless the dtype is one of the four formats.
[[nodiscard]] Format format_of(const otr_dtype& dtype, const Subject& what);
// Of a format, or of what messages alone carry; throws OTR_E_DTYPE.
[[nodiscard]] otr_dtype dtype_named(std::string_view name);

// "[2, 3]"
[[nodiscard]] std::string text_of(std::span<const int64_t> shape);
// Product of the extents; throws OTR_E_SHAPE on a negative extent or more than 2^56 elements.
[[nodiscard]] int64_t count_of(std::span<const int64_t> shape, const Subject& what);

inline constexpr otr_device kHost{OTR_DEVICE_CPU, 0};

// Of as many dimensions as most tensors have, without memory of its own.
using Extents = boost::container::small_vector<int64_t, 6>;

// A view that was checked once: on the CPU or on `device`, a known format, a legal shape, data
// unless it is empty or `data_required` is false.
struct View {
  bool on_host = true;
  std::byte* data = nullptr;
  Format format = Format::float32;
  int64_t count = 0;
  bool contiguous = true;
  Extents shape, strides;
};
[[nodiscard]] View check(const otr_tensor& t, const Subject& what, bool data_required = true,
                         const otr_device& device = kHost);
// Throws OTR_E_DEVICE unless the tensor is on `device`.
void require_device(const otr_tensor& t, const Subject& what, const otr_device& device);

// What gradients carry: which factors were multiplied into them and which are still to come. Zeros:
// nothing is known, the gradients are the caller's own.
struct Tag {
  double loss_scale = 0;     // multiplied in
  int32_t accumulation = 0;  // number of steps they were divided by; 0: not yet
  int32_t ranks = 0;         // number of ranks that their sum will be divided by; 0: as here
};

// Calls body with views that together are elements [first, first + count) of `whole`, in row-major
// order; offset: where the part begins, from `first` on.
void for_each_part(const View& whole, int64_t first, int64_t count,
                   const std::function<void(const View& part, int64_t offset)>& body);

// Both on the host. Row-major contiguous destination ← view × factor, rounded to nearest even.
void read(void* destination, Format to, const View& from, float factor = 1.0F);
// View ← row-major contiguous source, rounded to nearest even.
void write(const View& to, const void* source, Format from);

// A row-major tensor; shape is kept by reference.
[[nodiscard]] otr_tensor make(void* data, const otr_dtype& dtype, std::span<const int64_t> shape,
                              const otr_device& device = kHost);
[[nodiscard]] inline otr_tensor make(void* data, Format format, std::span<const int64_t> shape,
                                     const otr_device& device = kHost) {
  return make(data, dtype_of(format), shape, device);
}

}  // namespace outrigger::tensor
