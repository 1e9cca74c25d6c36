// SPDX-License-Identifier: Apache-2.0
#include "core/memory/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace outrigger::memory {

#ifdef __SSE2__
namespace {

constexpr size_t kLine = 64;

// to: the beginning of a line.
void stream_line(std::byte* to, const std::byte* from) {
  for (size_t i = 0; i < kLine; i += sizeof(__m128i)) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), part);
  }
}

}  // namespace

void copy_past_caches(std::byte* to, std::span<const std::byte> from) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = std::min(misaligned == 0 ? 0 : kLine - misaligned, from.size());
  std::memcpy(to, from.data(), head);
  const size_t end = head + (from.size() - head) / kLine * kLine;
  for (size_t at = head; at < end; at += kLine) stream_line(to + at, from.data() + at);
  _mm_sfence();  // another thread may be told that they are there
  std::memcpy(to + end, from.data() + end, from.size() - end);
}
#else
void copy_past_caches(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}
#endif

}  // namespace outrigger::memory
