// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/adam.h"

#include "kernels/block_moments.h"
#include "kernels/reference/block8.h"
#include "kernels/reference/split.h"

namespace outrigger::kernels::reference {
namespace {

// A weight whose bfloat16 is published and whose rest lies beside it.
struct Split {
  using Storage = uint16_t;
};

template <class Weight, class ExpAvg, class ExpAvgSq, class Grad>
UpdateCount adam_elements(const Adam& a) {
  constexpr bool kSplit = std::is_same_v<Weight, Split>;
  auto* weight = static_cast<typename Weight::Storage*>(a.weight);
  auto* exp_avg = static_cast<typename ExpAvg::Storage*>(a.exp_avg);
  auto* exp_avg_sq = static_cast<typename ExpAvgSq::Storage*>(a.exp_avg_sq);
  const auto* grad = static_cast<const typename Grad::Storage*>(a.grad);
  [[maybe_unused]] auto* published = static_cast<uint16_t*>(a.published);

  UpdateCount count;
  const auto value_at = [&](int64_t i) {
    if constexpr (kSplit) {
      return join(weight[i], a.remainder[i]);
    } else {
      return Weight::load(weight[i]);
    }
  };
  for (int64_t i = 0; i < a.count; ++i) {
    const float old = value_at(i);
    const AdamElement e = adam_element(a.scalars, Grad::load(grad[i]), old,
                                       ExpAvg::load(exp_avg[i]), ExpAvgSq::load(exp_avg_sq[i]));
    const uint64_t element = a.random.first_element + static_cast<uint64_t>(i);
    if constexpr (kSplit) {
      const Halves halves = split_of(e.weight);
      weight[i] = halves.published;
      a.remainder[i] = halves.remainder;
    } else {
      weight[i] = store_state<Weight>(e.weight, a.weight_rounding, a.random.weight_key, element,
                                      a.random.step);
    }
    exp_avg[i] = store_state<ExpAvg>(e.exp_avg, a.exp_avg_rounding, a.random.exp_avg_key, element,
                                     a.random.step);
    exp_avg_sq[i] = store_state<ExpAvgSq>(e.exp_avg_sq, a.exp_avg_sq_rounding,
                                          a.random.exp_avg_sq_key, element, a.random.step);
    if constexpr (std::is_same_v<Weight, Element<Format::float32>>) {
      if (published != nullptr) {
        published[i] = a.published_format == Format::float16 ? round_to_float16(e.weight)
                                                             : round_to_bfloat16(e.weight);
      }
    }
    count.updates += e.update ? 1 : 0;
    count.vanished += e.update && value_at(i) == old ? 1 : 0;
  }
  return count;
}

// Calls f with the trait of a moment's format: float32 or bfloat16.
template <class Function>
UpdateCount with_moment(Format format, Function&& f) {
  if (format == Format::bfloat16) return f(Element<Format::bfloat16>{});
  return f(Element<Format::float32>{});
}

// Of a weight's or gradient's: float16, too.
template <class Function>
UpdateCount with_value(Format format, Function&& f) {
  if (format == Format::float16) return f(Element<Format::float16>{});
  return with_moment(format, f);
}

template <class Function>
UpdateCount with_weight(const Adam& a, Function&& f) {
  return a.remainder != nullptr ? f(Split{}) : with_value(a.weight_format, f);
}

}  // namespace

UpdateCount adam(const Adam& a) {
  if (has_blocks(a)) return update_by_blocks(a, adam, unpack, pack);
  return with_weight(a, [&](auto w) {
    return with_moment(a.exp_avg_format, [&](auto m) {
      return with_moment(a.exp_avg_sq_format, [&](auto v) {
        return with_value(a.grad_format, [&](auto g) {
          return adam_elements<decltype(w), decltype(m), decltype(v), decltype(g)>(a);
        });
      });
    });
  });
}

}  // namespace outrigger::kernels::reference
