// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/kernels.h"

#include <algorithm>
#include <vector>

#include "kernels/fold_origin.h"
#include "plugins/simulated/work.h"

namespace outrigger::simulated {
namespace {

struct Side {
  std::byte* data;
  Format format;
  std::vector<int64_t> strides;

  [[nodiscard]] std::byte* at(int64_t element) const {
    return data + element * static_cast<int64_t>(kernels::size_of(format));
  }
};

struct Strided {
  Side to, from;
  std::vector<int64_t> shape;
  int64_t count;
  float factor;
  bool add;

  void run(void* destination, const void* source, int64_t n) const {
    if (add) {
      kernels::add(destination, to.format, source, from.format, n);
    } else if (factor == 1) {
      kernels::convert(destination, to.format, source, from.format, n);
    } else {
      kernels::scale(destination, to.format, source, from.format, factor, n);
    }
  }

  void run() const {
    if (shape.empty()) {
      run(to.data, from.data, count);
      return;
    }
    std::vector<int64_t> index(shape.size(), 0);
    for (int64_t done = 0; done < count; ++done) {
      int64_t target = 0, source = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        target += index[d] * to.strides[d];
        source += index[d] * from.strides[d];
      }
      run(to.at(target), from.at(source), 1);
      for (size_t d = shape.size(); d-- > 0;) {
        if (++index[d] < shape[d]) break;
        index[d] = 0;
      }
    }
  }
};

// The lowest and highest element that a side touches lie in one allocation.
Side side_of(Memories& memories, const void* data, bool is_written, int32_t format,
             const otr_plugin_convert& c, const int64_t* strides, const char* what) {
  Side side{nullptr, format_of(format), {}};
  int64_t lowest = 0, highest = c.count - 1;
  if (c.shape != nullptr) {
    side.strides.assign(strides, strides + c.ndim);
    highest = 0;
    for (int32_t d = 0; d < c.ndim; ++d) {
      const int64_t reach = (c.shape[d] - 1) * strides[d];
      (reach < 0 ? lowest : highest) += reach;
    }
  }
  const int64_t before = lowest * static_cast<int64_t>(kernels::size_of(side.format));
  const std::byte* const first = static_cast<const std::byte*>(data) + before;
  const size_t bytes = size_in_bytes(highest - lowest + 1, side.format);
  side.data =
      (is_written ? memories.writes(first, bytes, what) : memories.reads(first, bytes, what)) -
      before;
  return side;
}

}  // namespace

void convert(Device& device, const otr_plugin_convert* list, int64_t count, uint64_t stream) {
  Memories memories(device);
  std::vector<Strided> all;
  for (int64_t i = 0; i < count; ++i) {
    const otr_plugin_convert c = element_of(list, i);
    if (c.count == 0) continue;
    Strided& work = all.emplace_back(Strided{
        side_of(memories, c.to, true, c.to_format, c, c.to_strides, "convert's to"),
        side_of(memories, c.from, false, c.from_format, c, c.from_strides, "convert's from"),
        {},
        c.count,
        c.factor,
        c.add != 0});
    if (c.shape != nullptr) work.shape.assign(c.shape, c.shape + c.ndim);
  }
  if (all.empty()) return;
  device.launch(stream, "a conversion", memories.touches(), [all = std::move(all)] {
    for (const Strided& work : all) work.run();
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
  otr_plugin_norm* out = given.norm;
  device.launch(stream, "a fold", memories.touches(),
                [f, sources = std::move(sources), out]() mutable {
                  kernels::NormSum norm;
                  kernels::Origin origin;
                  if (sources.empty()) {
                    kernels::sum_of_squares(norm, f.accumulator, f.accumulator_format, f.count,
                                            f.first_index);
                  } else {
                    std::vector<std::byte> kept;
                    f.norm = &norm;
                    origin = kernels::fold_with_origin(f, sources, kept);
                  }
                  if (out == nullptr) return;
                  *out = written(norm, origin.rank);
                });
}

}  // namespace outrigger::simulated
