// SPDX-License-Identifier: Apache-2.0
// A fixed number of bits, in words.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outrigger {

class Bits {
 public:
  Bits() = default;
  explicit Bits(int64_t count) : words_((static_cast<size_t>(count) + kWord - 1) / kWord) {}

  [[nodiscard]] bool operator[](int64_t index) const {
    return (words_[word(index)] >> shift(index) & 1) != 0;
  }
  void set(int64_t index) { words_[word(index)] |= uint64_t{1} << shift(index); }
  [[nodiscard]] std::span<uint64_t> words() { return words_; }

 private:
  static constexpr size_t kWord = 64;
  static size_t word(int64_t index) { return static_cast<size_t>(index) / kWord; }
  static size_t shift(int64_t index) { return static_cast<size_t>(index) % kWord; }
  std::vector<uint64_t> words_;
};

}  // namespace outrigger
