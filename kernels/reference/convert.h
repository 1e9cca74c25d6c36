// SPDX-License-Identifier: Apache-2.0
// convert, scale, add: shapes are flat arrays of `count` elements, aligned to the element.
//   convert   d = round(s)                        one rounding, also from float64; NaN payload kept
//   scale     d = round(float32(s) * factor)      NaN canonical
//   add       d = round(float32(d) + float32(s))  NaN canonical
#pragma once

#include "kernels/reference/formats.h"

namespace outrigger::kernels::reference {

template <class To, class From>
OTR_ELEMENTWISE typename To::Storage convert_element(typename From::Storage x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, Element<Format::float64>>) {
    return To::store_double(x);
  } else {
    return To::store(From::load(x));
  }
}

template <class To, class From>
OTR_ELEMENTWISE typename To::Storage scale_element(typename From::Storage x, float factor) {
  return To::store(canonical(From::load(x) * factor));
}

template <class To, class From>
OTR_ELEMENTWISE typename To::Storage add_element(typename To::Storage into,
                                                 typename From::Storage x) {
  return To::store(canonical(To::load(into) + From::load(x)));
}

void convert(void* destination, Format to, const void* source, Format from, int64_t count);
void scale(void* destination, Format to, const void* source, Format from, float factor,
           int64_t count);
void add(void* destination, Format to, const void* source, Format from, int64_t count);

}  // namespace outrigger::kernels::reference
