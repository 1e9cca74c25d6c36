// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/kernels.h"

#include <algorithm>
#include <vector>

#include "plugins/simulated/work.h"

namespace outrigger::simulated {
namespace {

// The lowest and highest element that a side touches lie in one allocation.
std::byte* side_of(Memories& memories, const void* data, bool is_written, Format format,
                   const otr_plugin_convert& c, const int64_t* strides, const char* what) {
  int64_t lowest = 0, highest = c.count - 1;
  if (c.shape != nullptr) {
    highest = 0;
    for (int32_t d = 0; d < c.ndim; ++d) {
      const int64_t reach = (c.shape[d] - 1) * strides[d];
      (reach < 0 ? lowest : highest) += reach;
    }
  }
  const int64_t before = lowest * static_cast<int64_t>(kernels::size_of(format));
  const std::byte* const first = static_cast<const std::byte*>(data) + before;
  const size_t bytes = size_in_bytes(highest - lowest + 1, format);
  return (is_written ? memories.writes(first, bytes, what) : memories.reads(first, bytes, what)) -
         before;
}

}  // namespace

void convert(Device& device, const otr_plugin_convert* list, int64_t count, uint64_t stream) {
  Memories memories(device);
  std::vector<kernels::cuda::Conversion> all;
  for (int64_t i = 0; i < count; ++i) {
    const otr_plugin_convert c = element_of(list, i);
    if (c.count == 0) continue;
    kernels::cuda::Conversion& work = all.emplace_back();
    work.to_format = format_of(c.to_format);
    work.from_format = format_of(c.from_format);
    work.to = side_of(memories, c.to, true, work.to_format, c, c.to_strides, "convert's to");
    work.from =
        side_of(memories, c.from, false, work.from_format, c, c.from_strides, "convert's from");
    work.factor = c.factor;
    work.add = c.add != 0;
    work.count = c.count;
    if (c.shape == nullptr) continue;
    if (!kernels::cuda::set_dimensions(work, c.shape, c.to_strides, c.from_strides, c.ndim)) {
      fail(OTR_E_UNSUPPORTED, "a conversion of " + std::to_string(c.ndim) +
                                  " dimensions of which more than " +
                                  std::to_string(kernels::cuda::kDimensions) + " are apart");
    }
  }
  if (all.empty()) return;
  device.launch(stream, "a conversion", memories.touches(), [all = std::move(all)] {
    for (const kernels::cuda::Conversion& work : all) on_lanes::convert(work);
  });
}

void fold(Device& device, const otr_plugin_fold& list, uint64_t stream) {
  const otr_plugin_fold given = element_of(&list, 0);
  Memories memories(device);
  kernels::Fold f;
  f.source_format = format_of(given.source_format);
  f.accumulator_format = format_of(given.accumulator_format);
  const size_t bytes = size_in_bytes(given.count, f.accumulator_format);
  f.accumulator = given.world > 0 ? memories.writes(given.accumulator, bytes, "fold's sum")
                                  : memories.reads(given.accumulator, bytes, "fold's sum");
  f.add = given.add != 0;
  f.count = given.count;
  f.first_index = given.first_index;
  std::vector<const void*> sources;
  for (int32_t r = 0; r < given.world; ++r) {
    sources.push_back(memories.reads(given.sources[r], size_in_bytes(given.count, f.source_format),
                                     "fold's source"));
  }
  f.world = given.world;
  otr_plugin_norm* out = given.norm;
  device.launch(stream, "a fold", memories.touches(),
                [f, sources = std::move(sources), out]() mutable {
                  kernels::NormSum norm;
                  f.sources = sources.data();
                  f.norm = &norm;
                  const kernels::Origin origin = on_lanes::fold(f);
                  if (out != nullptr) *out = written(norm, origin.rank);
                });
}

}  // namespace outrigger::simulated
