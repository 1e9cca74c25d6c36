// SPDX-License-Identifier: Apache-2.0
// reference/convert.h for lists of arrays and for arrays with strides: a run of 256 elements to a
// warp, of which neighbouring lanes have neighbouring elements.
#pragma once

#include "kernels/cuda/elements.h"

namespace outrigger::kernels::cuda {

inline constexpr int kDimensions = 16;

// to = round(from × factor), factor 1: round(from); add: to = round(float32(to) + float32(from)).
struct Conversion {
  void* to;
  const void* from;
  Format to_format, from_format;
  bool add;
  float factor;
  int64_t count;
  int32_t ndim;  // 0: one element after the other; else the arrays below are filled
  int64_t shape[kDimensions], to_strides[kDimensions], from_strides[kDimensions];  // in elements
};

// Sets count and dimensions, of a row-major walk: those of one element go, and neighbours become
// one where both sides let them. False: more than kDimensions are left. On the host.
inline bool set_dimensions(Conversion& c, const int64_t* shape, const int64_t* to_strides,
                           const int64_t* from_strides, int32_t ndim) {
  c.count = 1;
  c.ndim = 0;
  for (int32_t d = 0; d < ndim; ++d) c.count *= shape[d];
  for (int32_t d = 0; d < ndim; ++d) {
    if (shape[d] == 1) continue;
    const int last = c.ndim - 1;
    if (last >= 0 && c.to_strides[last] == to_strides[d] * shape[d] &&
        c.from_strides[last] == from_strides[d] * shape[d]) {
      c.shape[last] *= shape[d];
    } else if (c.ndim == kDimensions) {
      return false;
    } else {
      c.shape[c.ndim++] = shape[d];
    }
    c.to_strides[c.ndim - 1] = to_strides[d];
    c.from_strides[c.ndim - 1] = from_strides[d];
  }
  if (c.ndim == 1 && c.to_strides[0] == 1 && c.from_strides[0] == 1) c.ndim = 0;
  return true;
}

template <class Body>
OTR_DEVICE void with_format(Format format, const Body& body) {
  if (format == Format::float64) {
    body(reference::Element<Format::float64>{});
  } else {
    with_number(format, body);
  }
}

// Where the i-th element lies, row-major.
struct Places {
  int64_t to, from;
};
OTR_DEVICE Places places_of(const Conversion& c, int64_t i) {
  if (c.ndim == 0) return {i, i};
  Places places = {0, 0};
  for (int d = c.ndim; d-- > 0;) {
    const int64_t at = i % c.shape[d];
    i /= c.shape[d];
    places.to += at * c.to_strides[d];
    places.from += at * c.from_strides[d];
  }
  return places;
}

OTR_DEVICE void convert_run(const Conversion& c, int64_t first) {
  with_format(c.to_format, [&](auto to_element) {
    with_format(c.from_format, [&](auto from_element) {
      using To = decltype(to_element);
      using From = decltype(from_element);
      auto* const to = static_cast<typename To::Storage*>(c.to);
      const auto* const from = static_cast<const typename From::Storage*>(c.from);
      each_lane([&](int lane) {
        for (int k = 0; k < kPerLane; ++k) {
          const int64_t i = first + k * kLanes + lane;
          if (i >= c.count) break;
          const Places at = places_of(c, i);
          if (c.add) {
            to[at.to] = reference::add_element<To, From>(to[at.to], from[at.from]);
          } else if (c.factor == 1) {
            to[at.to] = reference::convert_element<To, From>(from[at.from]);
          } else {
            to[at.to] = reference::scale_element<To, From>(from[at.from], c.factor);
          }
        }
      });
    });
  });
}

}  // namespace outrigger::kernels::cuda
