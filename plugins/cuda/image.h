// SPDX-License-Identifier: Apache-2.0
// The compiled kernels: image.cpp where the build has had nvcc, no_image.cpp else.
#pragma once

#include <string_view>

namespace outrigger::cuda {

// Compute capability, times ten: what kernels are compiled for as PTX.
inline constexpr int kLeastCapability = 75;

struct Image {
  const void* data;  // what a driver loads; without nvcc, something that it refuses
  // What to add to a driver's refusal.
  std::string_view advice;
};
[[nodiscard]] Image image();

}  // namespace outrigger::cuda
