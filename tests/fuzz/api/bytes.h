// SPDX-License-Identifier: Apache-2.0
// Where a program's choices come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace otr_fuzz {

// One record of a program: a fixed number of bytes, so that what one call draws does not move what
// the next one does. A call that needs more draws from a generator that the record seeds.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> record) : record_(record) {
    uint32_t seed = 2166136261U;
    for (const uint8_t byte : record) seed = (seed ^ byte) * 16777619U;
    more_.seed(seed | 1);
  }

  uint8_t byte() {
    if (next_ < record_.size()) return record_[next_++];
    return static_cast<uint8_t>(more_() >> 8);
  }
  // 0 .. end-1, end <= 65536.
  uint32_t below(uint32_t end) {
    uint32_t value = byte();
    if (end > 256) value = value << 8 | byte();
    return value % end;
  }
  bool one_in(uint32_t n) { return below(n) == n - 1; }
  template <typename T, size_t kCount>
  const T& pick(const T (&list)[kCount]) {
    return list[below(kCount)];
  }

 private:
  std::span<const uint8_t> record_;
  size_t next_ = 0;
  std::minstd_rand more_;
};

}  // namespace otr_fuzz
