// SPDX-License-Identifier: Apache-2.0
// Every rank's values of a trivially copyable type, in rank order.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"

namespace outrigger::comm {

// All ranks give the same number of values. Collective.
template <typename T>
std::vector<T> gather_values(Communicator& comm, const std::vector<T>& mine,
                             std::string_view label) {
  std::vector<T> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), label);
  return all;
}

}  // namespace outrigger::comm
