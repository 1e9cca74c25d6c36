// SPDX-License-Identifier: Apache-2.0
// Merges that are used in more than one place. Collective: each is one operation, so that a call
// that was interrupted in it can be made again.
#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "core/comm/group.h"

namespace outrigger::comm {

inline void merge_bits(std::span<std::byte> into, std::span<const std::byte> from) {
  for (size_t i = 0; i < from.size(); ++i) into[i] |= from[i];
}

// bits |= every rank's; of any type without padding.
template <typename T>
void unite(Group& group, std::span<T> bits, std::string_view label) {
  const auto merge = [](size_t, auto into, auto from) { merge_bits(into, from); };
  group.combine(std::as_writable_bytes(bits), merge, label);
}

// True on all ranks if it is on one of them.
inline bool any(Group& group, bool mine, std::string_view label) {
  uint8_t value = mine ? 1 : 0;
  unite(group, std::span(&value, 1), label);
  return value != 0;
}

// merge(T& into, const T& from) of values of a trivially copyable type, at any address.
template <typename T, typename Function>
void merge_as(std::byte* into, const std::byte* from, const Function& merge) {
  T a, b;
  std::memcpy(&a, into, sizeof a);
  std::memcpy(&b, from, sizeof b);
  merge(a, b);
  std::memcpy(into, &a, sizeof a);
}

// Every rank has as many values; afterwards values[i] is the merge of all ranks' values[i].
template <typename T, typename Function>
void combine_values(Group& group, std::span<T> values, const Function& merge,
                    std::string_view label) {
  static_assert(kMergeUnit % sizeof(T) == 0, "no value may be cut");
  group.combine(
      std::as_writable_bytes(values),
      [&](size_t, std::span<std::byte> into, std::span<const std::byte> from) {
        for (size_t at = 0; at < from.size(); at += sizeof(T)) {
          merge_as<T>(into.data() + at, from.data() + at, merge);
        }
      },
      label);
}

template <typename T, typename Function>
void combine_value(Group& group, T& value, const Function& merge, std::string_view label) {
  static_assert(sizeof(T) <= kMergeUnit, "the value may not be cut");
  group.combine(
      std::as_writable_bytes(std::span(&value, 1)),
      [&](size_t, std::span<std::byte> into, std::span<const std::byte> from) {
        merge_as<T>(into.data(), from.data(), merge);
      },
      label);
}

// What ranks have of one thing: the first rank's value, and that of the first rank that has
// another.
template <typename T>
struct alignas(std::bit_ceil(2 * sizeof(T) + 8)) Compared {
  T first, other;
  int32_t lowest;     // the rank of `first`
  int32_t rank = -1;  // the rank of `other`; −1: all are equal
};

template <typename T>
void merge(Compared<T>& into, const Compared<T>& from) {
  if (into.rank >= 0) return;
  if (from.first != into.first) {
    into.other = from.first;
    into.rank = from.lowest;
  } else if (from.rank >= 0) {
    into.other = from.other;
    into.rank = from.rank;
  }
}

// Every rank has as many values.
template <typename T>
std::vector<Compared<T>> compare(Group& group, std::span<const T> mine, std::string_view label) {
  std::vector<Compared<T>> values;
  values.reserve(mine.size());
  for (const T& value : mine) values.push_back({value, value, group.rank()});
  combine_values(group, std::span(values), merge<T>, label);
  return values;
}

template <typename T>
Compared<T> compare(Group& group, const T& mine, std::string_view label) {
  return compare(group, std::span(&mine, 1), label).front();
}

}  // namespace outrigger::comm
