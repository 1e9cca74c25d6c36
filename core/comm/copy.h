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

// The same past the caches: for what no cache will hold, it saves reading the destination before.
inline void stream_bytes(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kVector = sizeof(__m128i), kLine = 4 * kVector;
  const size_t head = std::min(bytes, (kVector - reinterpret_cast<uintptr_t>(to)) % kVector);
  copy_bytes(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    for (size_t i = 0; i < kLine; i += kVector) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
  }
  _mm_sfence();
#endif
  copy_bytes(to, from, bytes);
}

}  // namespace outrigger::comm
