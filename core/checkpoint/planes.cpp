// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/planes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace outrigger::checkpoint {

using kernels::Format;
using kernels::kBlockBytes;
using kernels::kLeaf;

namespace {

constexpr int64_t kScale = 4;  // bytes of a block's scale, which is in front of its codes

constexpr std::array<Plane, 1> kFloat32{{{"", Dtype::f32, 1}}};
constexpr std::array<Plane, 1> kBfloat16{{{"", Dtype::bf16, 1}}};
constexpr std::array<Plane, 1> kFloat16{{{"", Dtype::f16, 1}}};
constexpr std::array<Plane, 2> kSplit{{{"", Dtype::bf16, 1}, {".low", Dtype::u16, 1}}};
constexpr std::array<Plane, 2> kBlocks{{{"", Dtype::u8, 1}, {".scale", Dtype::f32, kLeaf}}};

constexpr std::array<std::pair<std::string_view, Format>, 6> kFormatNames{
    {{"float32", Format::float32},
     {"bfloat16", Format::bfloat16},
     {"float16", Format::float16},
     {"split", Format::split},
     {"block8", Format::block8},
     {"positive_block8", Format::positive_block8}}};

template <typename Body>
void each_block(int64_t count, const Body& body) {
  for (int64_t first = 0; first < count; first += kLeaf) {
    body(first, first / kLeaf, static_cast<size_t>(std::min(kLeaf, count - first)));
  }
}

}  // namespace

std::span<const Plane> planes_of(Format format) {
  switch (format) {
    case Format::bfloat16:
      return kBfloat16;
    case Format::float16:
      return kFloat16;
    case Format::split:
      return kSplit;
    case Format::block8:
    case Format::positive_block8:
      return kBlocks;
    default:
      return kFloat32;
  }
}

std::span<const std::byte> plane_bytes(Format format, size_t plane, const Run& run,
                                       std::vector<std::byte>& scratch) {
  const auto bytes = static_cast<size_t>(planes_of(format)[plane].bytes(run.count));
  if (format == Format::split) return {plane == 0 ? run.upper : run.data, bytes};
  if (!kernels::is_block(format)) return {run.data, bytes};
  scratch.resize(bytes);
  each_block(run.count, [&](int64_t first, int64_t block, size_t codes) {
    const std::byte* const from = run.data + block * kBlockBytes;
    if (plane == 0) {
      std::memcpy(scratch.data() + first, from + kScale, codes);
    } else {
      std::memcpy(scratch.data() + block * kScale, from, kScale);
    }
  });
  return scratch;
}

void fill_run(Format format, std::span<const std::vector<std::byte>> planes, int64_t count,
              std::byte* data, std::byte* upper) {
  if (!kernels::is_block(format)) {
    const bool split = format == Format::split;
    std::ranges::copy(planes[0], split ? upper : data);
    if (split) std::ranges::copy(planes[1], data);
    return;
  }
  each_block(count, [&](int64_t first, int64_t block, size_t codes) {
    std::byte* const to = data + block * kBlockBytes;
    std::memcpy(to, planes[1].data() + block * kScale, kScale);
    std::memcpy(to + kScale, planes[0].data() + first, codes);
    std::memset(to + kScale + codes, 0, static_cast<size_t>(kLeaf) - codes);
  });
}

std::string_view format_name(Format format) {
  return std::ranges::find(kFormatNames, format, [](const auto& n) { return n.second; })->first;
}

const Format* format_named(std::string_view name) {
  const auto* found = std::ranges::find(kFormatNames, name, [](const auto& n) { return n.first; });
  return found == kFormatNames.end() ? nullptr : &found->second;
}

}  // namespace outrigger::checkpoint
