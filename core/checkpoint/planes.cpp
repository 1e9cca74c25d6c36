// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/planes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/composed.h"

namespace outrigger::checkpoint {

using kernels::Format;
using kernels::kLeaf;

namespace {

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

// Which plane a run has as `data`.
size_t plane_in_data(Format format) { return format == Format::split ? 1 : 0; }

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

std::span<const std::byte> plane_bytes(Format format, size_t plane, const Run& run) {
  const auto bytes = static_cast<size_t>(planes_of(format)[plane].bytes(run.count));
  return {plane == plane_in_data(format) ? run.data : run.beside, bytes};
}

void OwnRun::fill(Format format, std::span<const std::vector<std::byte>> planes, int64_t count) {
  const size_t in_data = plane_in_data(format);
  data.assign(planes[in_data].begin(), planes[in_data].end());
  data.resize(static_cast<size_t>(kernels::plain_bytes_of(count, format)));
  beside.clear();
  if (planes_of(format).size() == 2) beside = planes[1 - in_data];
}

void OwnRun::read(float* values, Format format, int64_t count) const {
  kernels::read_float32(values, data.data(), beside.data(), format, count);
}

std::string_view format_name(Format format) {
  return std::ranges::find(kFormatNames, format, [](const auto& n) { return n.second; })->first;
}

const Format* format_named(std::string_view name) {
  const auto* found = std::ranges::find(kFormatNames, name, [](const auto& n) { return n.first; });
  return found == kFormatNames.end() ? nullptr : &found->second;
}

}  // namespace outrigger::checkpoint
