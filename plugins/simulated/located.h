// SPDX-License-Identifier: Apache-2.0
// Kernels' work, whose addresses are those of the host, with those where the device finds the same
// memory; and what of it they touch.
#pragma once

#include <span>
#include <vector>

#include "plugins/common/work.h"
#include "plugins/simulated/device.h"

namespace outrigger::simulated {

class Memories {
 public:
  explicit Memories(const Device& device) : device_(device) {}
  template <typename T>
  T* reads(T* data, size_t bytes, const char* what) {
    return at<T>(note(data, bytes, false, what));
  }
  template <typename T>
  T* writes(T* data, size_t bytes, const char* what) {
    return at<T>(note(data, bytes, true, what));
  }
  [[nodiscard]] std::span<const Touch> touches() const { return touches_; }

  [[nodiscard]] kernels::cuda::Conversion located(kernels::cuda::Conversion c);
  // sources: where the located addresses are kept.
  [[nodiscard]] kernels::Fold located(kernels::Fold f, std::vector<const void*>& sources);
  [[nodiscard]] kernels::Product located(kernels::Product p);
  [[nodiscard]] kernels::Update located(kernels::Update u, plugins::Use use);

 private:
  template <typename T>
  static T* at(std::byte* data) {
    return static_cast<T*>(static_cast<void*>(data));
  }
  std::byte* note(const void* data, size_t bytes, bool is_written, const char* what);
  void* side(const void* data, bool is_written, kernels::Format format,
             const kernels::cuda::Conversion& c, const int64_t* strides, const char* what);
  void moment(void*& data, float*& scales, kernels::Format format, int64_t count, const char* what);
  const Device& device_;
  std::vector<Touch> touches_;
};

}  // namespace outrigger::simulated
