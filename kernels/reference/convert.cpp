// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/convert.h"

#include <cstring>

namespace outrigger::kernels::reference {
namespace {

// Calls f(to, from) with the traits of both formats.
template <class Function>
void with_elements(Format to, Format from, Function&& f) {
  with_element(to, [&](auto t) { with_element(from, [&](auto s) { f(t, s); }); });
}

}  // namespace

void convert(void* destination, Format to, const void* source, Format from, int64_t count) {
  if (to == from) {  // a copy keeps a signalling NaN's bits where a register might not
    if (count > 0) std::memcpy(destination, source, static_cast<size_t>(count) * size_of(to));
    return;
  }
  with_elements(to, from, [&](auto t, auto s) {
    using To = decltype(t);
    using From = decltype(s);
    auto* d = static_cast<typename To::Storage*>(destination);
    const auto* x = static_cast<const typename From::Storage*>(source);
    for (int64_t i = 0; i < count; ++i) d[i] = convert_element<To, From>(x[i]);
  });
}

void scale(void* destination, Format to, const void* source, Format from, float factor,
           int64_t count) {
  with_elements(to, from, [&](auto t, auto s) {
    using To = decltype(t);
    using From = decltype(s);
    auto* d = static_cast<typename To::Storage*>(destination);
    const auto* x = static_cast<const typename From::Storage*>(source);
    for (int64_t i = 0; i < count; ++i) d[i] = scale_element<To, From>(x[i], factor);
  });
}

void add(void* destination, Format to, const void* source, Format from, int64_t count) {
  with_elements(to, from, [&](auto t, auto s) {
    using To = decltype(t);
    using From = decltype(s);
    auto* d = static_cast<typename To::Storage*>(destination);
    const auto* x = static_cast<const typename From::Storage*>(source);
    for (int64_t i = 0; i < count; ++i) d[i] = add_element<To, From>(d[i], x[i]);
  });
}

}  // namespace outrigger::kernels::reference
