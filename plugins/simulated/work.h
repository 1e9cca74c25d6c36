// SPDX-License-Identifier: Apache-2.0
// What the kernels of a simulated device share: how they read what they are given, and where the
// memory is that they touch.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/on_lanes.h"
#include "kernels/kernels.h"
#include "plugins/simulated/device.h"

namespace outrigger::simulated {

using kernels::Format;
namespace on_lanes = kernels::cuda::on_lanes;

// Of a tensor.
inline Format format_of(int32_t format) {
  if (format < OTR_PLUGIN_FLOAT32 || format > OTR_PLUGIN_FLOAT64) {
    fail(OTR_E_DTYPE, "format " + std::to_string(format) + " is none of OTR_PLUGIN_FLOAT32 to 64");
  }
  return static_cast<Format>(format);
}

inline size_t size_in_bytes(int64_t count, Format format) {
  return static_cast<size_t>(count) * kernels::size_of(format);
}

// The memory of a kernel: where the device finds it, and what it touches.
class Memories {
 public:
  explicit Memories(const Device& device) : device_(device) {}
  std::byte* reads(const void* data, size_t bytes, const char* what) {
    return note(data, bytes, false, what);
  }
  std::byte* writes(const void* data, size_t bytes, const char* what) {
    return note(data, bytes, true, what);
  }
  [[nodiscard]] std::span<const Touch> touches() const { return touches_; }

 private:
  std::byte* note(const void* data, size_t bytes, bool is_written, const char* what) {
    if (bytes > 0) touches_.push_back({static_cast<const std::byte*>(data), bytes, is_written});
    return device_.inside(data, bytes, what);
  }
  const Device& device_;
  std::vector<Touch> touches_;
};

// An element of a list whose maker may know more members, or fewer.
template <typename T>
T element_of(const T* list, int64_t index) {
  T element{};
  const size_t size = list->struct_size;
  std::memcpy(&element, reinterpret_cast<const char*>(list) + static_cast<size_t>(index) * size,
              std::min(size, sizeof element));
  return element;
}

inline otr_plugin_norm written(const kernels::NormSum& norm, int32_t rank) {
  otr_plugin_norm out{};
  std::copy(norm.limbs.begin(), norm.limbs.end(), out.limbs);
  out.nonfinite = norm.nonfinite;
  out.first_nonfinite = norm.first_nonfinite;
  out.first_rank = rank;
  return out;
}

}  // namespace outrigger::simulated
