// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/tensor.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::tensor {
namespace {

struct Known {
  std::string_view name;
  otr_dtype dtype;
};
// The formats, in their order; then what messages alone carry.
constexpr size_t kFormats = 4;
constexpr std::array<Known, 13> kKnown{{
    {"float32", {OTR_DTYPE_FLOAT, 32, 1}},
    {"bfloat16", {OTR_DTYPE_BFLOAT, 16, 1}},
    {"float16", {OTR_DTYPE_FLOAT, 16, 1}},
    {"float64", {OTR_DTYPE_FLOAT, 64, 1}},
    {"bool", {OTR_DTYPE_BOOL, 8, 1}},
    {"int8", {OTR_DTYPE_INT, 8, 1}},
    {"int16", {OTR_DTYPE_INT, 16, 1}},
    {"int32", {OTR_DTYPE_INT, 32, 1}},
    {"int64", {OTR_DTYPE_INT, 64, 1}},
    {"uint8", {OTR_DTYPE_UINT, 8, 1}},
    {"uint16", {OTR_DTYPE_UINT, 16, 1}},
    {"uint32", {OTR_DTYPE_UINT, 32, 1}},
    {"uint64", {OTR_DTYPE_UINT, 64, 1}},
}};
static_assert(static_cast<int>(Format::float32) == 0 && static_cast<int>(Format::bfloat16) == 1 &&
              static_cast<int>(Format::float16) == 2 && static_cast<int>(Format::float64) == 3);

// Calls row(offset in elements, index of the row's first element) for every innermost row.
template <typename Row>
void for_each_row(const View& view, const Row& row) {
  const size_t dims = view.shape.size();
  if (view.count == 0) return;
  if (dims == 0) {
    row(int64_t{0}, int64_t{0});
    return;
  }
  std::vector<int64_t> index(dims - 1, 0);
  const int64_t inner = view.shape[dims - 1];
  for (int64_t done = 0; done < view.count; done += inner) {
    int64_t offset = 0;
    for (size_t d = 0; d + 1 < dims; ++d) offset += index[d] * view.strides[d];
    row(offset, done);
    for (size_t d = dims - 1; d-- > 0;) {
      if (++index[d] < view.shape[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

bool is_same(const otr_dtype& a, const otr_dtype& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

std::string_view name_of(Format format) { return kernels::name_of(format); }
otr_dtype dtype_of(Format format) { return kKnown.at(static_cast<size_t>(format)).dtype; }

std::string text_of(const otr_dtype& dtype) {
  static constexpr std::array<std::string_view, 7> kNames{"int",    "uint",    "float", "handle",
                                                          "bfloat", "complex", "bool"};
  if (dtype.code >= kNames.size() || dtype.lanes != 1) {
    return format_text("code {}, {} bits, {} lanes", dtype.code, dtype.bits, dtype.lanes);
  }
  const std::string_view name = kNames.at(dtype.code);
  return name == "bool" ? std::string(name) : format_text("{}{}", name, dtype.bits);
}

Format format_of(const otr_dtype& dtype, const Subject& what) {
  for (size_t i = 0; i < kFormats; ++i) {
    if (is_same(kKnown.at(i).dtype, dtype)) return static_cast<Format>(i);
  }
  fail(OTR_E_DTYPE,
       "{} has dtype {}; legal are float32, bfloat16, float16 and float64: convert it first", what,
       text_of(dtype));
}

otr_dtype dtype_named(std::string_view name) {
  for (const Known& known : kKnown) {
    if (known.name == name) return known.dtype;
  }
  fail(
      OTR_E_DTYPE,
      "dtype \"{}\" is unknown; legal are float32, bfloat16, float16 and float64, and for messages "
      "bool, int8 to int64 and uint8 to uint64",
      name);
}

std::string text_of(std::span<const int64_t> shape) {
  return format_text("[{}]", fmt::join(shape, ", "));
}

int64_t count_of(std::span<const int64_t> shape, const Subject& what) {
  constexpr int64_t kMost = int64_t{1} << 56;  // room for every product with an element size
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      fail(OTR_E_SHAPE, "{} has shape {}: an extent cannot be negative", what, text_of(shape));
    }
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(count, extent, &count) || count > kMost) {
      fail(OTR_E_SHAPE, "{} has shape {}: more than 2^56 elements", what, text_of(shape));
    }
  }
  return count;
}

void require_device(const otr_tensor& t, const Subject& what, const otr_device& device) {
  if (t.device.device_type == device.device_type &&
      (t.device.device_type == OTR_DEVICE_CPU || t.device.device_id == device.device_id)) {
    return;
  }
  fail(OTR_E_DEVICE, "{} is on device {} of type {}; this engine is on device {} of type {}{}",
       what, t.device.device_id, t.device.device_type, device.device_id, device.device_type,
       device.device_type == OTR_DEVICE_CPU ? " (CPU)" : "");
}

namespace {

bool is_row_major(const View& view) {
  int64_t expected = 1;
  for (size_t d = view.shape.size(); view.count > 0 && d-- > 0;) {
    if (view.shape[d] != 1 && view.strides[d] != expected) return false;
    expected *= view.shape[d];
  }
  return true;
}

// Indices [begin, begin + rows) of the first dimension.
View rows_of(const View& whole, int64_t begin, int64_t rows) {
  View part = whole;
  part.data += begin * whole.strides[0] * static_cast<int64_t>(kernels::size_of(whole.format));
  part.count = whole.count / whole.shape[0] * rows;
  part.shape[0] = rows;
  part.contiguous = is_row_major(part);
  return part;
}

View row_of(const View& whole, int64_t index) {
  View row = rows_of(whole, index, 1);
  row.shape.erase(row.shape.begin());
  row.strides.erase(row.strides.begin());
  row.contiguous = is_row_major(row);
  return row;
}

void parts_of(const View& whole, int64_t first, int64_t count, int64_t offset,
              const std::function<void(const View&, int64_t)>& body) {
  if (count == 0) return;
  if (whole.contiguous) {
    View part = whole;
    part.data += first * static_cast<int64_t>(kernels::size_of(whole.format));
    part.count = count;
    part.shape = {count};
    part.strides = {1};
    body(part, offset);
    return;
  }
  const int64_t row = whole.count / whole.shape[0];
  const int64_t index = first / row;
  if (const int64_t begin = first % row; begin > 0 || count < row) {  // the end of a row
    const int64_t n = std::min(count, row - begin);
    parts_of(row_of(whole, index), begin, n, offset, body);
    parts_of(whole, first + n, count - n, offset + n, body);
    return;
  }
  const int64_t rows = count / row;
  body(rows_of(whole, index, rows), offset);
  parts_of(whole, first + rows * row, count - rows * row, offset + rows * row, body);
}

}  // namespace

void for_each_part(const View& whole, int64_t first, int64_t count,
                   const std::function<void(const View& part, int64_t offset)>& body) {
  parts_of(whole, first, count, 0, body);
}

View check(const otr_tensor& t, const Subject& what, bool data_required, const otr_device& device) {
  const bool on_host = t.device.device_type == OTR_DEVICE_CPU;
  if (!on_host) require_device(t, what, device);
  if (t.ndim < 0 || t.ndim > 64) {
    fail(OTR_E_SHAPE, "{} has ndim {}; legal is 0 to 64", what, t.ndim);
  }
  if (t.ndim > 0 && t.shape == nullptr) {
    fail(OTR_E_ARGUMENT, "{} has ndim {} but its shape is NULL", what, t.ndim);
  }
  View view;
  view.on_host = on_host;
  view.format = format_of(t.dtype, what);
  view.shape.assign(t.shape, t.shape + t.ndim);
  view.count = count_of(view.shape, what);
  view.strides.resize(view.shape.size());
  int64_t expected = 1;
  for (size_t d = view.shape.size(); d-- > 0;) {
    view.strides[d] = t.strides == nullptr ? expected : t.strides[d];
    if (view.count > 0) expected *= view.shape[d];
  }
  view.contiguous = is_row_major(view);
  if (t.data == nullptr) {
    if (data_required && view.count > 0) {
      fail(OTR_E_ARGUMENT, "{} has {} elements but its data is NULL", what, view.count);
    }
    return view;
  }
  view.data = static_cast<std::byte*>(t.data) + t.byte_offset;
  const auto size = kernels::size_of(view.format);
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): every format of a tensor has a size
  if (view.count > 0 && reinterpret_cast<uintptr_t>(view.data) % size != 0) {
    fail(OTR_E_ARGUMENT, "{} starts at an address that is not a multiple of its element size {}",
         what, size);
  }
  return view;
}

void read(void* destination, Format to, const View& from, float factor) {
  const auto copy = [&](std::byte* out, const std::byte* in, int64_t count) {
    if (factor == 1.0F) {
      kernels::convert(out, to, in, from.format, count);
    } else {
      kernels::scale(out, to, in, from.format, factor, count);
    }
  };
  auto* out = static_cast<std::byte*>(destination);
  if (from.contiguous) {
    copy(out, from.data, from.count);
    return;
  }
  const auto in_size = static_cast<int64_t>(kernels::size_of(from.format));
  const auto out_size = static_cast<int64_t>(kernels::size_of(to));
  const int64_t inner = from.shape.back();
  const int64_t stride = from.strides.back();
  for_each_row(from, [&](int64_t offset, int64_t first) {
    const std::byte* row = from.data + offset * in_size;
    if (stride == 1) {
      copy(out + first * out_size, row, inner);
      return;
    }
    for (int64_t i = 0; i < inner; ++i) {
      copy(out + (first + i) * out_size, row + i * stride * in_size, 1);
    }
  });
}

void write(const View& to, const void* source, Format from) {
  const auto* in = static_cast<const std::byte*>(source);
  if (to.contiguous) {
    kernels::convert(to.data, to.format, in, from, to.count);
    return;
  }
  const auto in_size = static_cast<int64_t>(kernels::size_of(from));
  const auto out_size = static_cast<int64_t>(kernels::size_of(to.format));
  const int64_t inner = to.shape.back();
  const int64_t stride = to.strides.back();
  for_each_row(to, [&](int64_t offset, int64_t first) {
    std::byte* row = to.data + offset * out_size;
    if (stride == 1) {
      kernels::convert(row, to.format, in + first * in_size, from, inner);
      return;
    }
    for (int64_t i = 0; i < inner; ++i) {
      kernels::convert(row + i * stride * out_size, to.format, in + (first + i) * in_size, from, 1);
    }
  });
}

otr_tensor make(void* data, const otr_dtype& dtype, std::span<const int64_t> shape,
                const otr_device& device) {
  otr_tensor t{};
  t.data = data;
  t.device = device;
  t.ndim = static_cast<int32_t>(shape.size());
  t.dtype = dtype;
  // DLPack's shape is not const; nothing in this library writes through it.
  t.shape = const_cast<int64_t*>(shape.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return t;
}

}  // namespace outrigger::tensor
