// SPDX-License-Identifier: Apache-2.0
// Every rank's values of a trivially copyable type, in rank order.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/comm/group.h"

namespace outrigger::comm {

// All ranks give the same number of values. Collective.
template <typename T>
std::vector<T> gather_values(Group& group, const std::vector<T>& mine, std::string_view label) {
  std::vector<T> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), label);
  return all;
}

}  // namespace outrigger::comm
