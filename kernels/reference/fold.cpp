// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/fold.h"

#include <algorithm>

#include "kernels/reference/norm.h"

namespace outrigger::kernels::reference {
namespace {

template <class Accumulator, class Source>
void fold_elements(const Fold& fold) {
  auto* accumulator = static_cast<typename Accumulator::Storage*>(fold.accumulator);
  const auto load = [&](int32_t rank, int64_t i) {
    return Source::load(static_cast<const typename Source::Storage*>(fold.sources[rank])[i]);
  };
  for (int64_t i = 0; i < fold.count; ++i) {
    float sum = load(0, i);
    for (int32_t rank = 1; rank < fold.world; ++rank) sum += load(rank, i);
    accumulator[i] = fold_element<Accumulator>(accumulator[i], fold.add, sum);
  }
}

}  // namespace

void fold(const Fold& fold) {
  with_element(fold.accumulator_format, [&](auto a) {
    with_element(fold.source_format,
                 [&](auto s) { fold_elements<decltype(a), decltype(s)>(fold); });
  });
  if (fold.norm != nullptr) {
    reference::sum_of_squares(*fold.norm, fold.accumulator, fold.accumulator_format, fold.count,
                              fold.first_index);
  }
}

}  // namespace outrigger::kernels::reference
