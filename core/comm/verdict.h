// SPDX-License-Identifier: Apache-2.0
// What one rank tells the others of its own part of an operation, so that all of them fail or none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/base/error.h"

namespace outrigger::comm {

// Trivially copyable: it crosses processes.
struct Verdict {
  int32_t status = OTR_OK;
  char text[508] = {};

  void set(int32_t code, std::string_view what) {
    status = code;
    std::copy_n(what.data(), std::min(what.size(), sizeof text - 1), text);
  }
  // Throws what the rank says, after `what` it was about.
  void require(std::string_view what, int32_t rank) const {
    if (status == OTR_OK) return;
    fail(status, "{} on rank {}: {}", what, rank,
         std::string_view(text, strnlen(text, sizeof text)));
  }
};

// Of several ranks: what the first says that has a status other than OTR_OK.
struct FirstVerdict {
  Verdict verdict;
  int32_t rank = -1;  // −1: none has

  void set(int32_t of_rank, int32_t status, std::string_view what) {
    verdict.set(status, what);
    rank = of_rank;
  }
  void require(std::string_view what) const { verdict.require(what, rank); }
};
inline void merge_first(FirstVerdict& into, const FirstVerdict& from) {
  if (into.rank < 0) into = from;
}

}  // namespace outrigger::comm
