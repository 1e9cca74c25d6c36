// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/kernels.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/fold_origin.h"
#include "kernels/kernels.h"

namespace outrigger::simulated {
namespace {

using kernels::Format;

Format format_of(int32_t format) {
  if (format < OTR_PLUGIN_FLOAT32 || format > OTR_PLUGIN_FLOAT64) {
    fail(OTR_E_DTYPE, "format " + std::to_string(format) + " is none of OTR_PLUGIN_FLOAT32 to 64");
  }
  return static_cast<Format>(format);
}

size_t size_in_bytes(int64_t count, Format format) {
  return static_cast<size_t>(count) * kernels::size_of(format);
}

// The memory of a kernel: where the device finds it, and what it touches.
class Memories {
 public:
  explicit Memories(const Device& device) : device_(device) {}
  std::byte* reads(const void* data, size_t bytes, const char* what) {
    return note(data, bytes, false, what);
  }
  std::byte* writes(const void* data, size_t bytes, const char* what) {
    return note(data, bytes, true, what);
  }
  [[nodiscard]] std::span<const Touch> touches() const { return touches_; }

 private:
  std::byte* note(const void* data, size_t bytes, bool is_written, const char* what) {
    if (bytes > 0) touches_.push_back({static_cast<const std::byte*>(data), bytes, is_written});
    return device_.inside(data, bytes, what);
  }
  const Device& device_;
  std::vector<Touch> touches_;
};

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

void convert(Device& device, const otr_plugin_convert& given, uint64_t stream) {
  if (given.count == 0) return;
  Memories memories(device);
  Strided work{
      side_of(memories, given.to, true, given.to_format, given, given.to_strides, "convert's to"),
      side_of(memories, given.from, false, given.from_format, given, given.from_strides,
              "convert's from"),
      {},
      given.count,
      given.factor,
      given.add != 0};
  if (given.shape != nullptr) work.shape.assign(given.shape, given.shape + given.ndim);
  device.launch(stream, "a conversion", memories.touches(),
                [work = std::move(work)] { work.run(); });
}

void fold(Device& device, const otr_plugin_fold& given, uint64_t stream) {
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
                  std::copy(norm.limbs.begin(), norm.limbs.end(), out->limbs);
                  out->nonfinite = norm.nonfinite;
                  out->first_nonfinite = norm.first_nonfinite;
                  out->first_rank = origin.rank;
                });
}

void update(Device& device, const otr_plugin_update& given, otr_plugin_update_count* host_total,
            uint64_t stream) {
  kernels::Update a;
  Memories memories(device);
  const auto memory = [&](const void* data, int32_t format, const char* what) -> void* {
    return memories.writes(data, size_in_bytes(given.count, format_of(format)), what);
  };
  const auto rounding = [](int32_t r) { return static_cast<kernels::Rounding>(r); };
  a.rule = static_cast<kernels::Rule>(given.rule);
  a.grad_format = format_of(given.grad_format);
  a.grad = memories.reads(given.grad, size_in_bytes(given.count, a.grad_format),
                          "the update's gradient");
  a.weight_format = format_of(given.weight_format);
  a.weight = memory(given.weight, given.weight_format, "the update's weight");
  a.exp_avg_format = format_of(given.exp_avg_format);
  a.exp_avg_sq_format = format_of(given.exp_avg_sq_format);
  if (given.exp_avg != nullptr) {
    a.exp_avg = memory(given.exp_avg, given.exp_avg_format, "the update's exp_avg");
  }
  if (given.exp_avg_sq != nullptr) {
    a.exp_avg_sq = memory(given.exp_avg_sq, given.exp_avg_sq_format, "the update's exp_avg_sq");
  }
  if (given.published != nullptr) {
    a.published_format = format_of(given.published_format);
    a.published = memory(given.published, given.published_format, "the update's published");
  }
  a.weight_rounding = rounding(given.weight_rounding);
  a.exp_avg_rounding = rounding(given.exp_avg_rounding);
  a.exp_avg_sq_rounding = rounding(given.exp_avg_sq_rounding);
  a.count = given.count;
  a.scalars.gradient_factor = given.gradient_factor;
  a.scalars.clip_value = given.clip_value;
  a.scalars.beta1 = given.beta1;
  a.scalars.one_minus_beta1 = given.one_minus_beta1;
  a.scalars.beta2 = given.beta2;
  a.scalars.one_minus_beta2 = given.one_minus_beta2;
  a.scalars.eps = given.eps;
  a.scalars.inverse_sqrt_bias2 = given.inverse_sqrt_bias2;
  a.scalars.minus_step = given.minus_step;
  a.scalars.weight_decay = given.weight_decay;
  a.scalars.minus_lr_decay = given.minus_lr_decay;
  a.scalars.decoupled = given.decoupled != 0;
  a.scalars.nesterov = given.nesterov != 0;
  a.random = {given.key, given.first_element, given.step};
  device.launch(stream, "an update", memories.touches(), [a, host_total] {
    const kernels::UpdateCount count = kernels::update(a);
    if (host_total == nullptr) return;
    host_total->updates += count.updates;
    host_total->vanished += count.vanished;
  });
}

}  // namespace outrigger::simulated
