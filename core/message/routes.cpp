// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/error.h"
#include "core/message/message.h"

namespace outrigger::message {
namespace {

int64_t sum_of(std::span<const int64_t> rows, const char* what) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank] < 0 || __builtin_add_overflow(sum, rows[rank], &sum)) {
      fail(OTR_E_ARGUMENT, "{}[{}] = {}; legal is 0 or more, and together at most 2^63 - 1", what,
           rank, rows[rank]);
    }
  }
  return sum;
}

}  // namespace

std::vector<Route> routes(std::span<const int64_t> source, std::span<const int64_t> target) {
  const int64_t given = sum_of(source, "source_rows"), needed = sum_of(target, "target_rows");
  if (given != needed) {
    fail(OTR_E_ARGUMENT,
         "source_rows are {} rows together, and target_rows {}; they have to be the same", given,
         needed);
  }
  std::vector<Route> all;
  size_t a = 0, b = 0;
  for (int64_t in_a = 0, in_b = 0; a < source.size() && b < target.size();) {
    const int64_t rows = std::min(source[a] - in_a, target[b] - in_b);
    if (rows > 0) {
      all.push_back({static_cast<int32_t>(a), static_cast<int32_t>(b), in_a, in_b, rows});
    }
    in_a += rows;
    in_b += rows;
    if (in_a == source[a]) {
      ++a;
      in_a = 0;
    }
    if (b < target.size() && in_b == target[b]) {
      ++b;
      in_b = 0;
    }
  }
  return all;
}

}  // namespace outrigger::message
