// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace outrigger::comm {

inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

// Copies past the caches, which saves reading the destination: for what no cache is likely to hold.
// `kept`, unless null, gets a second copy, which stays in the caches. The destinations overlap
// nothing.
inline void stream_bytes(std::byte* to, const std::byte* from, size_t bytes,
                         std::byte* kept = nullptr) {
  size_t streamed = 0;
#if defined(__SSE2__)
  constexpr size_t kVector = sizeof(__m128i), kLine = 4 * kVector;
  const size_t head = std::min(bytes, (kVector - reinterpret_cast<uintptr_t>(to)) % kVector);
  copy_bytes(to, from, head);
  if (kept != nullptr) copy_bytes(kept, from, head);
  for (streamed = head; bytes - streamed >= kLine; streamed += kLine) {
    for (size_t i = streamed; i < streamed + kLine; i += kVector) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), value);
      if (kept != nullptr) _mm_storeu_si128(reinterpret_cast<__m128i*>(kept + i), value);
    }
  }
  _mm_sfence();
#endif
  copy_bytes(to + streamed, from + streamed, bytes - streamed);
  if (kept != nullptr) copy_bytes(kept + streamed, from + streamed, bytes - streamed);
}

}  // namespace outrigger::comm
