// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/decoder.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::checkpoint {

using kernels::Format;
using kernels::kLeaf;

void Decoder::require(int64_t root, Kept kept, int64_t first, int64_t count) const {
  const Manifest::Parameter& p = manifest_.parameters[static_cast<size_t>(root)];
  if (first < 0 || count > p.count() || first > p.count() - count) {
    fail(OTR_E_ARGUMENT,
         "parameter \"{}\" has {} elements; {} from element {} on are not among them",
         printable(p.name), p.count(), count, first);
  }
  if (p.count() == 0 || source_.has(root, kept)) return;
  fail(OTR_E_NOT_FOUND, "the checkpoint has no {} of parameter \"{}\"", name_of(kept),
       printable(p.name));
}

void Decoder::decode(int64_t root, Kept kept, int64_t first, std::span<float> out) {
  const Format format = *manifest_.formats.at(static_cast<size_t>(kept));
  const auto count = static_cast<int64_t>(out.size());
  for (size_t i = 0; i < planes_of(format).size(); ++i) {
    source_.read(cursors_, root, kept, i, first, count, planes_.at(i));
  }
  run_.fill(format, planes_, count);
  run_.read(out.data(), format, count);
}

// Of a split master the upper halves alone: they are what was published, and need not be what
// rounding the whole gives.
void Decoder::decode_upper(int64_t root, int64_t first, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  source_.read(cursors_, root, Kept::master, 0, first, count, planes_[0]);
  kernels::convert(out.data(), Format::float32, planes_[0].data(), Format::bfloat16, count);
}

// Calls body(first, floats) for whole leaves that together cover what is asked for.
template <typename Body>
void Decoder::in_leaves(int64_t root, int64_t first, std::span<float> out, const Body& body) {
  const int64_t all = manifest_.parameters[static_cast<size_t>(root)].count();
  while (!out.empty()) {
    const int64_t begin = first / kLeaf * kLeaf, lead = first - begin;
    const int64_t wanted =
        std::min<int64_t>(static_cast<int64_t>(out.size()), kDecodedAtATime - lead);
    const int64_t end = std::min(all, kernels::in_leaves(first + wanted));
    if (lead == 0 && end == first + wanted) {
      body(begin, out.first(static_cast<size_t>(wanted)));
    } else {
      edge_.resize(static_cast<size_t>(end - begin));
      body(begin, std::span(edge_));
      std::copy_n(edge_.begin() + lead, wanted, out.begin());
    }
    first += wanted;
    out = out.subspan(static_cast<size_t>(wanted));
  }
}

void Decoder::read(int64_t parameter, Kept kept, int64_t first, std::span<float> out) {
  const int64_t root = root_of(parameter);
  require(root, kept, first, static_cast<int64_t>(out.size()));
  in_leaves(root, first, out,
            [&](int64_t begin, std::span<float> floats) { decode(root, kept, begin, floats); });
}

void Decoder::read_weight(int64_t parameter, int64_t first, std::span<float> out) {
  read(parameter, weight_of(root_of(parameter)), first, out);
}

void Decoder::read_published(int64_t parameter, int64_t first, std::span<float> out) {
  const int64_t root = root_of(parameter);
  const auto published = manifest_.formats.at(static_cast<size_t>(Kept::published));
  if (weight_of(root) == Kept::master &&
      manifest_.formats.at(static_cast<size_t>(Kept::master)) == Format::split) {
    require(root, Kept::master, first, static_cast<int64_t>(out.size()));
    in_leaves(root, first, out,
              [&](int64_t begin, std::span<float> floats) { decode_upper(root, begin, floats); });
    return;
  }
  read_weight(parameter, first, out);
  if (!published || *published == Format::float32) return;
  const auto count = static_cast<int64_t>(out.size());
  rounded_.resize(
      static_cast<size_t>(kernels::bytes_of(std::min(count, kDecodedAtATime), *published)));
  for (int64_t done = 0; done < count; done += kDecodedAtATime) {
    const int64_t n = std::min(kDecodedAtATime, count - done);
    kernels::convert(rounded_.data(), *published, out.data() + done, Format::float32, n);
    kernels::convert(out.data() + done, Format::float32, rounded_.data(), *published, n);
  }
}

}  // namespace outrigger::checkpoint
