// SPDX-License-Identifier: Apache-2.0
// One source for a device and for the host: work of a warp, whose 32 lanes take one part of it
// after the other. nvcc gives each lane a thread. A host compiler runs the lanes of a part in a
// loop, so that the tests of a machine without a GPU run what a GPU runs.
//
// A part is a body of each_lane(). What a lane keeps between two parts is PerLane; what one lane
// leaves for another is Scratch, with a sync() between.
#pragma once

#include "kernels/reference/norm.h"
#include "kernels/reference/philox.h"

#if defined(__CUDACC__)
#define OTR_DEVICE __device__ __forceinline__
#else
#define OTR_DEVICE inline
#endif

namespace outrigger::kernels::cuda {

inline constexpr int kLanes = reference::kLanes;
inline constexpr int kPerLane = static_cast<int>(kLeaf) / kLanes;  // elements
inline constexpr int kSide = kPerLane / 2;                         // of them side by side

// A warp's shared memory.
struct alignas(16) Scratch {
  float values[kLeaf];
  uint32_t random[4 * reference::kBlocksPerLeaf];
};

#if defined(__CUDA_ARCH__)

template <class T>
struct PerLane {
  T own;
  OTR_DEVICE T& operator[](int) { return own; }
};

template <class Body>
OTR_DEVICE void each_lane(Body&& body) {
  body(static_cast<int>(threadIdx.x) % kLanes);
}
OTR_DEVICE void sync() { __syncwarp(); }

// For all lanes.
OTR_DEVICE uint32_t largest(PerLane<uint32_t>& x) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffff, x.own, step);
    x.own = other > x.own ? other : x.own;
  }
  return x.own;
}
OTR_DEVICE bool all(PerLane<bool>& x) { return __all_sync(0xffffffff, x.own) != 0; }
// The sum in the order of reference/norm.h, for all lanes.
OTR_DEVICE double sum_for_all(PerLane<double>& x) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    x.own += __shfl_down_sync(0xffffffff, x.own, step);
  }
  return __shfl_sync(0xffffffff, x.own, 0);
}
// For all lanes.
OTR_DEVICE uint32_t sum_of(PerLane<uint32_t>& x) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    x.own += __shfl_xor_sync(0xffffffff, x.own, step);
  }
  return x.own;
}
OTR_DEVICE uint32_t ones_in(uint32_t x) { return static_cast<uint32_t>(__popc(x)); }

// The upper halves of two words, and the highest bytes of four, the first one's lowest.
OTR_DEVICE uint32_t upper_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }
OTR_DEVICE uint32_t highest_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
}

// The nearest float32, for x from 2^-100 to 2^100: an approximation, and one step of Newton's with
// the exact rest. What a compiler makes of sqrt() does the same after it has looked at x.
OTR_DEVICE float quick_root(float x) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  const float root = x * inverse;
  return std::fma(std::fma(-root, root, x), inverse * 0.5F, root);
}
// Likewise, for a divisor from 2^-60 to 2^75 and a quotient from 2^-40 to 2^60.
OTR_DEVICE float quick_quotient(float x, float divisor) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(divisor));
  inverse = std::fma(inverse, std::fma(-divisor, inverse, 1.0F), inverse);
  const float quotient = x * inverse;
  return std::fma(inverse, std::fma(-divisor, quotient, x), quotient);
}

OTR_DEVICE void add_to(uint64_t& sum, uint64_t x) {
  atomicAdd(reinterpret_cast<unsigned long long*>(&sum), static_cast<unsigned long long>(x));
}
OTR_DEVICE void lower_to(uint64_t& least, uint64_t x) {
  atomicMin(reinterpret_cast<unsigned long long*>(&least), static_cast<unsigned long long>(x));
}

#else

template <class T>
struct PerLane {
  T lanes[kLanes];
  T& operator[](int lane) { return lanes[lane]; }
};

template <class Body>
inline void each_lane(Body&& body) {
  for (int lane = 0; lane < kLanes; ++lane) body(lane);
}
inline void sync() {}

inline uint32_t largest(PerLane<uint32_t>& x) {
  uint32_t most = 0;
  for (const uint32_t each : x.lanes) most = each > most ? each : most;
  return most;
}
inline bool all(PerLane<bool>& x) {
  bool every = true;
  for (const bool each : x.lanes) every = every && each;
  return every;
}
inline double sum_for_all(PerLane<double>& x) { return reference::sum_of_lanes(x.lanes); }
inline uint32_t sum_of(PerLane<uint32_t>& x) {
  uint32_t sum = 0;
  for (const uint32_t each : x.lanes) sum += each;
  return sum;
}
inline uint32_t ones_in(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }
inline uint32_t upper_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000); }
inline uint32_t highest_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a >> 24 | b >> 24 << 8 | c >> 24 << 16 | d >> 24 << 24;
}
inline float quick_root(float x) { return std::sqrt(x); }
inline float quick_quotient(float x, float divisor) { return x / divisor; }

inline void add_to(uint64_t& sum, uint64_t x) { sum += x; }
inline void lower_to(uint64_t& least, uint64_t x) { least = x < least ? x : least; }

#endif

}  // namespace outrigger::kernels::cuda
