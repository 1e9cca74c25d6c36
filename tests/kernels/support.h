// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: arrays of any format, awkward values, every instruction set in turn.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/block8.h"
#include "kernels/reference/formats.h"

namespace outrigger::kernels::test {

// Sizes around a vector of any width, a pair of them, and a leaf.
inline const std::vector<int64_t> kSizes = {0,   1,   3,   4,   5,   7,   8,    9,    15,  16,
                                            17,  31,  32,  33,  63,  64,  65,   127,  255, 256,
                                            257, 509, 511, 512, 513, 767, 1000, 1024, 1301};

inline const std::vector<Format> kFormats = {Format::float32, Format::bfloat16, Format::float16,
                                             Format::float64};

inline std::vector<std::string> targets() {
  std::vector<std::string> names;
  std::stringstream list(simd_available());
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

// Runs body once for each instruction set of this machine, the oracle included; restores the best.
inline void for_each_target(const std::function<void()>& body) {
  const std::vector<std::string> names = targets();
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(simd_select(name.c_str()));
    body();
  }
  ASSERT_TRUE(simd_select(names.front().c_str()));
}

// `count` elements of a format, exactly as long as needed and `shift` elements off alignment; the
// scales of blocks apart. Elements of blocks are reached through pack() and unpack() only.
class Array {
 public:
  Array(Format format, int64_t count, int64_t shift = 0)
      : format_(format),
        count_(count),
        shift_(static_cast<size_t>(shift) * size_of(format)),
        bytes_(shift_ + static_cast<size_t>(plain_bytes_of(count, format))),
        scales_(static_cast<size_t>(scale_bytes_of(count, format)) / sizeof(float)) {}

  [[nodiscard]] Format format() const { return format_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] void* at(int64_t i = 0) {
    return bytes_.data() + shift_ + static_cast<size_t>(i) * size_of(format_);
  }
  [[nodiscard]] const void* at(int64_t i = 0) const { return const_cast<Array*>(this)->at(i); }
  // Of blocks: the scale of element i's.
  [[nodiscard]] float* scales(int64_t i = 0) {
    return scales_.empty() ? nullptr : scales_.data() + i / kLeaf;
  }
  [[nodiscard]] const float* scales() const { return scales_.data(); }

  template <class T>
  void set(int64_t i, T value) {
    std::memcpy(at(i), &value, sizeof value);
  }
  template <class T>
  [[nodiscard]] T get(int64_t i) const {
    T value;
    std::memcpy(&value, at(i), sizeof value);
    return value;
  }
  [[nodiscard]] uint64_t bits(int64_t i) const {
    uint64_t value = 0;
    std::memcpy(&value, at(i), size_of(format_));
    return value;
  }
  [[nodiscard]] int64_t bytes() const { return plain_bytes_of(count_, format_); }
  [[nodiscard]] int64_t blocks() const { return static_cast<int64_t>(scales_.size()); }
  // All elements as float32, by the oracle.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all(static_cast<size_t>(count_));
    if (is_block(format_)) {
      reference::unpack(all.data(), at(), scales(), format_, count_);
    } else {
      for (int64_t i = 0; i < count_; ++i) all[static_cast<size_t>(i)] = value(i);
    }
    return all;
  }
  void set_values(const std::vector<float>& all) {
    if (is_block(format_)) {
      reference::pack(at(), scales(), format_, all.data(), count_, {});
    } else {
      for (int64_t i = 0; i < count_; ++i) set_value(i, all[static_cast<size_t>(i)]);
    }
  }
  // float32 of an element, by the oracle.
  [[nodiscard]] float value(int64_t i) const {
    return reference::with_element(format_, [&](auto e) {
      using E = decltype(e);
      return E::load(get<typename E::Storage>(i));
    });
  }
  void set_value(int64_t i, float x) {
    reference::with_element(format_, [&](auto e) { set(i, decltype(e)::store(x)); });
  }

 private:
  Format format_;
  int64_t count_;
  size_t shift_;
  std::vector<char> bytes_;
  std::vector<float> scales_;
};

inline void expect_same_bits(const Array& got, const Array& want) {
  ASSERT_EQ(got.count(), want.count());
  if (is_block(got.format())) {
    const auto* g = static_cast<const unsigned char*>(got.at());
    const auto* w = static_cast<const unsigned char*>(want.at());
    for (int64_t i = 0; i < got.bytes(); ++i) {
      ASSERT_EQ(g[i], w[i]) << "code " << i % kLeaf << " of block " << i / kLeaf;
    }
    for (int64_t i = 0; i < got.blocks(); ++i) {
      ASSERT_EQ(reference::bits_of(got.scales()[i]), reference::bits_of(want.scales()[i]))
          << "the scale of block " << i;
    }
    return;
  }
  for (int64_t i = 0; i < got.count(); ++i) {
    ASSERT_EQ(got.bits(i), want.bits(i)) << "element " << i << " of " << got.count();
  }
}

enum class Values {
  ordinary,  // finite, of a training run's sizes
  any,       // every bit pattern: NaNs of all payloads, infinities, denormals, both zeros, extremes
};

inline void fill(Array& array, Values values, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  if (is_block(array.format())) {
    if (values == Values::ordinary) {
      std::vector<float> all(static_cast<size_t>(array.count()));
      for (float& x : all) x = normal(random) * 0.1F;
      array.set_values(all);
    } else {
      for (int64_t i = 0; i < array.bytes(); ++i) {
        static_cast<unsigned char*>(array.at())[i] = static_cast<unsigned char>(random());
      }
      for (int64_t i = 0; i < array.blocks(); ++i) {
        array.scales()[i] = reference::float_of(static_cast<uint32_t>(random()));
      }
    }
    return;
  }
  for (int64_t i = 0; i < array.count(); ++i) {
    if (values == Values::ordinary) {
      array.set_value(i, normal(random) * 0.1F);
      continue;
    }
    uint64_t bits = random();
    const auto width = static_cast<int>(8 * size_of(array.format()));
    const int exponent_bits = array.format() == Format::float64   ? 11
                              : array.format() == Format::float16 ? 5
                                                                  : 8;
    const int mantissa_bits = width - 1 - exponent_bits;
    const uint64_t exponent_mask = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
    switch (random() % 8) {
      case 0:  // NaN or Inf
        bits |= exponent_mask;
        break;
      case 1:  // denormal or zero
        bits &= ~exponent_mask;
        break;
      case 2:  // Inf or zero of either sign
        bits &= ~((uint64_t{1} << mantissa_bits) - 1);
        bits = (random() & 1) != 0 ? bits | exponent_mask : bits & ~exponent_mask;
        break;
      case 3:  // a tie when 16 bits are cut, or near one
        bits = (bits & ~uint64_t{0xffff}) | (0x8000 + random() % 3 - 1);
        break;
      default:
        break;
    }
    std::memcpy(array.at(i), &bits, size_of(array.format()));
  }
}

}  // namespace outrigger::kernels::test
