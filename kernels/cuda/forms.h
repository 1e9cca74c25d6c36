// SPDX-License-Identifier: Apache-2.0
// Updates that most trainings make, each with a kernel of its own: what is known of them there is
// nothing to be looked at for each element. The general kernel makes all others, with the same
// bits.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/cuda/update.h"

namespace outrigger::kernels::cuda {

// AdamW with decoupled decay on arrays that are aligned to 16 bytes.
struct Form {
  Format grad, weight, exp_avg, exp_avg_sq;
  bool split;
  Rounding rounding;  // of all states
  bool publish;       // to bfloat16
};
inline constexpr int kForms = 6;
inline constexpr Form kFormList[kForms] = {
    {Format::bfloat16, Format::float32, Format::float32, Format::float32, false, Rounding::nearest,
     true},
    {Format::float32, Format::float32, Format::float32, Format::float32, false, Rounding::nearest,
     false},
    {Format::bfloat16, Format::bfloat16, Format::bfloat16, Format::bfloat16, true,
     Rounding::nearest, false},
    {Format::bfloat16, Format::bfloat16, Format::bfloat16, Format::bfloat16, false,
     Rounding::nearest, false},
    {Format::bfloat16, Format::bfloat16, Format::bfloat16, Format::bfloat16, false,
     Rounding::stochastic, false},
    {Format::bfloat16, Format::bfloat16, Format::block8, Format::positive_block8, false,
     Rounding::stochastic, false},
};

// The same update, as a compiler sees what it is.
template <int kForm>
OTR_DEVICE Update of_form(Update u) {
  constexpr Form kIs = kFormList[kForm];
  u.rule = Rule::adam;
  u.grad_format = kIs.grad;
  u.weight_format = kIs.weight;
  u.exp_avg_format = kIs.exp_avg;
  u.exp_avg_sq_format = kIs.exp_avg_sq;
  u.weight_rounding = u.exp_avg_rounding = u.exp_avg_sq_rounding = kIs.rounding;
  u.published_format = Format::bfloat16;
  u.scalars.clip_value = __builtin_inff();
  u.scalars.decoupled = true;
  if (!kIs.split) u.remainder = nullptr;
  if (!kIs.publish) u.published = nullptr;
  return u;
}

// scalars: in place of the update's own.
template <int kForm>
OTR_DEVICE void update_leaf_of_form(const Update& general, const UpdateScalars& general_scalars,
                                    int64_t first, Scratch& scratch, Counts& counts) {
  const Update u = of_form<kForm>(general);
  UpdateScalars scalars = general_scalars;
  scalars.clip_value = u.scalars.clip_value;
  scalars.decoupled = u.scalars.decoupled;
  if (u.count - first >= kLeaf) {
    update_leaf(u, scalars, LeafOf::plain_at(first), scratch, counts);
  } else {
    update_leaf(u, scalars, LeafOf(u.count, first), scratch, counts);
  }
}

// On the host: which of them an update is; -1: none.
inline int form_of(const Update& u) {
  for (const void* data :
       {u.grad, static_cast<const void*>(u.weight), static_cast<const void*>(u.exp_avg),
        static_cast<const void*>(u.exp_avg_sq)}) {
    if (data == nullptr) return -1;
  }
  for (const void* data :
       {u.grad, static_cast<const void*>(u.weight), static_cast<const void*>(u.exp_avg),
        static_cast<const void*>(u.exp_avg_sq), static_cast<const void*>(u.published),
        static_cast<const void*>(u.remainder)}) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return -1;
  }
  if (u.rule != Rule::adam || !u.scalars.decoupled || u.scalars.clip_value != __builtin_inff()) {
    return -1;
  }
  const auto is_of = [](Format format, Rounding rounding, const Form& form) {
    return !RandomStates::is_random(format, Rounding::stochastic) || rounding == form.rounding;
  };
  for (int i = 0; i < kForms; ++i) {
    const Form& form = kFormList[i];
    const bool is = u.grad_format == form.grad && u.weight_format == form.weight &&
                    u.exp_avg_format == form.exp_avg && u.exp_avg_sq_format == form.exp_avg_sq &&
                    (u.remainder != nullptr) == form.split &&
                    (form.split || is_of(form.weight, u.weight_rounding, form)) &&
                    is_of(form.exp_avg, u.exp_avg_rounding, form) &&
                    is_of(form.exp_avg_sq, u.exp_avg_sq_rounding, form) &&
                    (u.published != nullptr) == form.publish &&
                    (!form.publish || u.published_format == Format::bfloat16);
    if (is) return i;
  }
  return -1;
}

// body(form) with a number that a compiler sees.
template <class Body>
void with_form(int form, const Body& body) {
  const auto each = [&]<int... kEach>(std::integer_sequence<int, kEach...>) {
    ((form == kEach ? body(std::integral_constant<int, kEach>{}) : void()), ...);
  };
  each(std::make_integer_sequence<int, kForms>{});
}

}  // namespace outrigger::kernels::cuda
