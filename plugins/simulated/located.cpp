// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/located.h"

namespace outrigger::simulated {

using kernels::Format;
using plugins::Use;

namespace {

size_t size_in_bytes(int64_t count, Format format) {
  return static_cast<size_t>(count) * kernels::size_of(format);
}

}  // namespace

std::byte* Memories::note(const void* data, size_t bytes, bool is_written, const char* what) {
  if (bytes > 0) touches_.push_back({static_cast<const std::byte*>(data), bytes, is_written});
  return device_.inside(data, bytes, what);
}

// The lowest and highest element that a side touches lie in one allocation.
void* Memories::side(const void* data, bool is_written, Format format,
                     const kernels::cuda::Conversion& c, const int64_t* strides, const char* what) {
  int64_t lowest = 0, highest = c.count - 1;
  if (c.ndim > 0) {
    highest = 0;
    for (int32_t d = 0; d < c.ndim; ++d) {
      const int64_t reach = (c.shape[d] - 1) * strides[d];
      (reach < 0 ? lowest : highest) += reach;
    }
  }
  const int64_t before = lowest * static_cast<int64_t>(kernels::size_of(format));
  const std::byte* const first = static_cast<const std::byte*>(data) + before;
  return note(first, size_in_bytes(highest - lowest + 1, format), is_written, what) - before;
}

kernels::cuda::Conversion Memories::located(kernels::cuda::Conversion c) {
  c.to = side(c.to, true, c.to_format, c, c.to_strides, "convert's to");
  c.from = side(c.from, false, c.from_format, c, c.from_strides, "convert's from");
  return c;
}

kernels::Fold Memories::located(kernels::Fold f, std::vector<const void*>& sources) {
  const size_t bytes = size_in_bytes(f.count, f.accumulator_format);
  f.accumulator = f.world > 0 ? writes(f.accumulator, bytes, "fold's sum")
                              : reads(f.accumulator, bytes, "fold's sum");
  for (int32_t r = 0; r < f.world; ++r) {
    sources.push_back(
        reads(f.sources[r], size_in_bytes(f.count, f.source_format), "fold's source"));
  }
  f.sources = sources.data();
  return f;
}

kernels::Product Memories::located(kernels::Product p) {
  const auto bytes = [](int64_t rows, int64_t columns) {
    return size_in_bytes(rows * columns, Format::float32);
  };
  p.left = reads(p.left, bytes(p.rows, p.inner), "the product's left");
  p.right = reads(p.right, bytes(p.inner, p.columns), "the product's right");
  if (p.plus != nullptr) p.plus = reads(p.plus, bytes(p.rows, p.columns), "the product's plus");
  p.out = writes(p.out, bytes(p.rows, p.columns), "the product's out");
  return p;
}

void Memories::moment(void*& data, float*& scales, Format format, int64_t count, const char* what) {
  if (data == nullptr) return;
  data = writes(data, static_cast<size_t>(kernels::plain_bytes_of(count, format)), what);
  if (!kernels::is_block(format)) return;
  scales = writes(scales, static_cast<size_t>(kernels::scale_bytes_of(count, format)),
                  "the update's scales");
}

kernels::Update Memories::located(kernels::Update u, Use use) {
  const auto size = [&](Format format) { return size_in_bytes(u.count, format); };
  u.grad = reads(u.grad, size(u.grad_format), "the update's gradient");
  const auto weight = [&](auto* data, const char* what) {
    return use == Use::lamb_norms ? reads(data, size(u.weight_format), what)
                                  : writes(data, size(u.weight_format), what);
  };
  if (use != Use::muon_direction) u.weight = weight(u.weight, "the update's weight");
  if (u.remainder != nullptr) u.remainder = weight(u.remainder, "the update's remainder");
  moment(u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.count, "the update's exp_avg");
  moment(u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, u.count,
         "the update's exp_avg_sq");
  if (u.published != nullptr) {
    u.published = writes(u.published, size(u.published_format), "what is published");
  }
  return u;
}

}  // namespace outrigger::simulated
