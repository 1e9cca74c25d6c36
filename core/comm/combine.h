// SPDX-License-Identifier: Apache-2.0
// Merges that are used in more than one place. Collective.
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include "core/comm/communicator.h"

namespace outrigger::comm {

// bits |= every rank's; of any type without padding.
template <typename T>
void unite(Communicator& comm, std::span<T> bits, std::string_view label) {
  const auto merge = [](size_t, std::span<std::byte> into, std::span<const std::byte> from) {
    for (size_t i = 0; i < from.size(); ++i) into[i] |= from[i];
  };
  comm.combine(std::as_writable_bytes(bits), merge, label);
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

// Each value of all ranks' equally many, merged; sizeof(T) divides kMergeUnit.
template <typename T, typename Function>
void combine_values(Communicator& comm, std::span<T> values, const Function& merge,
                    std::string_view label) {
  static_assert(kMergeUnit % sizeof(T) == 0);
  comm.combine(
      std::as_writable_bytes(values),
      [&](size_t, std::span<std::byte> into, std::span<const std::byte> from) {
        for (size_t at = 0; at < from.size(); at += sizeof(T)) {
          merge_as<T>(into.data() + at, from.data() + at, merge);
        }
      },
      label);
}

}  // namespace outrigger::comm
