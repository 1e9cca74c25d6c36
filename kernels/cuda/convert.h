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

template <class To, class From>
OTR_DEVICE void convert_one(const Conversion& c, typename To::Storage& to,
                            typename From::Storage from) {
  if (c.add) {
    to = reference::add_element<To, From>(to, from);
  } else if (c.factor == 1) {
    to = reference::convert_element<To, From>(from);
  } else {
    to = reference::scale_element<To, From>(from, c.factor);
  }
}

// body(To{}, From{}) with the conversion's formats.
template <class Body>
OTR_DEVICE void with_formats(const Conversion& c, const Body& body) {
  with_format(c.to_format,
              [&](auto to) { with_format(c.from_format, [&](auto from) { body(to, from); }); });
}

OTR_DEVICE void convert_strided(const Conversion& c, int64_t first) {
  with_formats(c, [&](auto to_element, auto from_element) {
    using To = decltype(to_element);
    using From = decltype(from_element);
    auto* const to = static_cast<typename To::Storage*>(c.to);
    const auto* const from = static_cast<const typename From::Storage*>(c.from);
    each_lane([&](int lane) {
      for (int k = 0; k < kPerLane; ++k) {
        const int64_t i = first + k * kLanes + lane;
        if (i >= c.count) break;
        const Places at = places_of(c, i);
        convert_one<To, From>(c, to[at.to], from[at.from]);
      }
    });
  });
}

// One element after the other: all that a lane reads is on its way before the first is used.
template <class To, class From>
OTR_DEVICE void convert_one_by_one(const Conversion& c, int64_t first) {
  auto* const to = static_cast<typename To::Storage*>(c.to) + first;
  const auto* const from = static_cast<const typename From::Storage*>(c.from) + first;
  const int count = c.count - first < kLeaf ? static_cast<int>(c.count - first) : 256;
  each_lane([&](int lane) {
    typename From::Storage read[kPerLane];
    typename To::Storage written[kPerLane] = {};
    for (int k = 0; k < kPerLane; ++k) {
      const int i = k * kLanes + lane;
      read[k] = i < count ? from[i] : typename From::Storage{};
      if (c.add && i < count) written[k] = to[i];
    }
    for (int k = 0; k < kPerLane; ++k) convert_one<To, From>(c, written[k], read[k]);
    for (int k = 0; k < kPerLane; ++k) {
      if (k * kLanes + lane < count) to[k * kLanes + lane] = written[k];
    }
  });
}

template <class Element>
OTR_DEVICE typename Element::Storage element_of(const Raw& raw, int i) {
  if constexpr (sizeof(typename Element::Storage) == 4) {
    return reference::float_of(raw.x[i]);
  } else {
    return half_of(raw, i);
  }
}
template <class Element>
using WordOf = std::conditional_t<sizeof(typename Element::Storage) == 4, uint32_t, uint16_t>;

// A whole leaf of arrays that are aligned to 16 bytes, four elements at a time.
template <class To, class From>
OTR_DEVICE void convert_sides(const Conversion& c, int64_t first) {
  const LeafOf leaf = LeafOf::plain_at(first);
  each_lane([&](int lane) {
    Raw from, to = {};
    read<WordOf<From>>(from, c.from, leaf, lane);
    if (c.add) read<WordOf<To>>(to, c.to, leaf, lane);
    typename To::Storage written[kPerLane];
    for (int i = 0; i < kPerLane; ++i) {
      written[i] = c.add ? element_of<To>(to, i) : typename To::Storage{};
      convert_one<To, From>(c, written[i], element_of<From>(from, i));
    }
    if constexpr (sizeof(typename To::Storage) == 4) {
      for (int i = 0; i < kPerLane; ++i) to.x[i] = reference::bits_of(written[i]);
      write<uint32_t>(c.to, leaf, lane, to);
    } else {
      uint32_t upper[kPerLane];
      for (int i = 0; i < kPerLane; ++i) upper[i] = uint32_t{written[i]} << 16;
      store_halves(c.to, leaf, lane, upper);
    }
  });
}

OTR_DEVICE void convert_plain(const Conversion& c, int64_t first) {
  with_formats(c, [&](auto to_element, auto from_element) {
    using To = decltype(to_element);
    using From = decltype(from_element);
    if constexpr (sizeof(typename To::Storage) < 8 && sizeof(typename From::Storage) < 8) {
      if (c.count - first >= kLeaf && is_aligned<Side<4>>(c.to) && is_aligned<Side<4>>(c.from)) {
        return convert_sides<To, From>(c, first);
      }
    }
    convert_one_by_one<To, From>(c, first);
  });
}

}  // namespace outrigger::kernels::cuda
