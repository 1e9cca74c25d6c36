// SPDX-License-Identifier: Apache-2.0
// Times each kernel on large arrays: nanoseconds an element and bytes a second, best of several.
// Not a test: figures depend on the machine; compare only what one run printed.
//
//   otr_kernel_bench [kibi-elements = 65536] [threads = 1] [repeats = 7] [rows that begin so]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/kernels.h"

namespace {

namespace k = outrigger::kernels;
using k::Format;
using k::Rounding;

struct Arguments {
  int64_t count = int64_t{64} << 20;
  int64_t threads = 1;
  int repeats = 7;
  std::string rows;
  [[nodiscard]] bool wants(const std::string& row) const { return row.starts_with(rows); }
};

// Bytes for `count` elements, filled with small positive numbers of the format.
class Array {
 public:
  Array(Format format, int64_t count)
      : format_(format),
        bytes_(static_cast<char*>(std::aligned_alloc(
            64, (static_cast<size_t>(k::bytes_of(count, format)) + 63) / 64 * 64))),
        scales_(k::scales_behind(bytes_.get(), count, format)) {
    constexpr int64_t kBlock = 4096;
    std::vector<float> values(static_cast<size_t>(kBlock));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1e-3F * (1.0F + static_cast<float>((i * 2654435761U) % 1024) / 1024.0F);
    }
    for (int64_t i = 0; i < count; i += kBlock) {
      if (scales_ != nullptr) {
        k::pack(at(i), scales(i), format, values.data(), std::min(kBlock, count - i), {});
        continue;
      }
      k::convert(at(i), format, values.data(), Format::float32, std::min(kBlock, count - i));
    }
  }
  void* at(int64_t element) const {
    return bytes_.get() + static_cast<size_t>(element) * k::size_of(format_);
  }
  float* scales(int64_t element) const {
    return scales_ == nullptr ? nullptr : scales_ + element / k::kLeaf;
  }
  Format format() const { return format_; }

 private:
  Format format_;
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> bytes_;  // on a cache line, as tensors are
  float* scales_;
};

// Runs body(first, count) over equal slices on all threads; prints the best time.
void measure(const Arguments& arguments, const std::string& what, double bytes_per_element,
             const std::function<void(int64_t, int64_t)>& body) {
  if (!arguments.wants(what)) return;
  double best = 1e30;
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::jthread> threads;
    const int64_t slice = arguments.count / arguments.threads / k::kLeaf * k::kLeaf;
    for (int64_t t = 1; t < arguments.threads; ++t) {
      threads.emplace_back([&, t] { body(t * slice, slice); });
    }
    body(0, slice);
    threads.clear();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / static_cast<double>(slice * arguments.threads));
  }
  std::printf("%-44s %7.3f ns/element %7.1f GB/s\n", what.c_str(), best * 1e9,
              bytes_per_element / best * 1e-9);
}

void adam_rows(const Arguments& arguments, const char* name, Format weight, Format state,
               Format grad, Rounding rounding, bool publish) {
  if (!arguments.wants(name)) return;
  const bool blocks = k::is_block(state);
  const Format second = blocks ? Format::positive_block8 : state;
  const Array w(weight, arguments.count), m(state, arguments.count), v(second, arguments.count);
  const Array g(grad, arguments.count);
  const Array published(Format::bfloat16, publish ? arguments.count : 1);
  const auto bytes = 2 * k::size_of(weight) + 4 * k::size_of(state) + k::size_of(grad) +
                     (publish ? size_t{2} : size_t{0});
  measure(arguments, name, static_cast<double>(bytes), [&](int64_t first, int64_t count) {
    k::Update a;
    a.grad = g.at(first);
    a.weight = w.at(first);
    a.exp_avg = m.at(first);
    a.exp_avg_sq = v.at(first);
    a.grad_format = grad;
    a.weight_format = weight;
    a.exp_avg_scales = m.scales(first);
    a.exp_avg_sq_scales = v.scales(first);
    a.exp_avg_format = state;
    a.exp_avg_sq_format = second;
    a.weight_rounding = a.exp_avg_rounding = a.exp_avg_sq_rounding = rounding;
    a.published = publish ? published.at(first) : nullptr;
    a.count = count;
    a.scalars.minus_step = -1e-5F;
    a.scalars.minus_lr_decay = -1e-7F;
    a.random = {1, static_cast<uint64_t>(first), 5};
    (void)k::update(a);
  });
}

void fold_rows(const Arguments& arguments, const char* name, Format source, Format accumulator,
               bool norm) {
  if (!arguments.wants(name)) return;
  const Array a(source, arguments.count), b(source, arguments.count),
      into(accumulator, arguments.count);
  const auto bytes = 2 * k::size_of(source) + k::size_of(accumulator);
  measure(arguments, name, static_cast<double>(bytes), [&](int64_t first, int64_t count) {
    const void* sources[] = {a.at(first), b.at(first)};
    k::NormSum sum;
    k::Fold f;
    f.sources = sources;
    f.world = 2;
    f.source_format = source;
    f.accumulator = into.at(first);
    f.accumulator_format = accumulator;
    f.count = count;
    f.norm = norm ? &sum : nullptr;
    k::fold(f);
  });
}

// A square product of one thread.
void product_row(const Arguments& arguments, int64_t n) {
  const std::string name = "product " + std::to_string(n);
  if (!arguments.wants(name)) return;
  const Array a(Format::float32, n * n), b(Format::float32, n * n), c(Format::float32, n * n);
  const k::Product p{
      static_cast<float*>(a.at(0)), static_cast<float*>(b.at(0)), n, n, n, 1, nullptr, 0,
      static_cast<float*>(c.at(0))};
  double best = 1e30;
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < n; i += k::kProductTile) {
      for (int64_t j = 0; j < n; j += k::kProductTile) k::product(p, i, j);
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  const auto size = static_cast<double>(n);
  std::printf("%-44s %7.3f ms %7.1f Gflop/s\n", name.c_str(), best * 1e3,
              2 * size * size * size / best * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (argc > 1) arguments.count = std::max(1L, std::atol(argv[1])) << 10;
  if (argc > 2) arguments.threads = std::max(1L, std::atol(argv[2]));
  if (argc > 3) arguments.repeats = std::max(1, std::atoi(argv[3]));
  if (argc > 4) arguments.rows = argv[4];
  std::printf("%s of %s; %ld Ki elements, %ld threads, best of %d\n", k::simd_name(),
              k::simd_available(), static_cast<long>(arguments.count >> 10),
              static_cast<long>(arguments.threads), arguments.repeats);
  constexpr Format f32 = Format::float32, bf16 = Format::bfloat16;
  constexpr Rounding nearest = Rounding::nearest, stochastic = Rounding::stochastic;
  adam_rows(arguments, "adam float32", f32, f32, f32, nearest, false);
  adam_rows(arguments, "adam float32, bf16 gradient, published", f32, f32, bf16, nearest, true);
  adam_rows(arguments, "adam bf16 weight, float32 states", bf16, f32, bf16, nearest, false);
  adam_rows(arguments, "adam bf16 all", bf16, bf16, bf16, nearest, false);
  adam_rows(arguments, "adam bf16 all, stochastic", bf16, bf16, bf16, stochastic, false);
  adam_rows(arguments, "adam bf16, float32 gradient", bf16, bf16, f32, nearest, false);
  adam_rows(arguments, "adam bf16, 8-bit moments", bf16, Format::block8, bf16, nearest, false);
  adam_rows(arguments, "adam bf16, 8-bit moments, stochastic", bf16, Format::block8, bf16,
            stochastic, false);
  fold_rows(arguments, "fold 2 x float32 -> float32, norm", f32, f32, true);
  fold_rows(arguments, "fold 2 x bf16 -> bf16, norm", bf16, bf16, true);
  fold_rows(arguments, "fold 2 x bf16 -> float32, norm", bf16, f32, true);
  fold_rows(arguments, "fold 2 x bf16 -> bf16, no norm", bf16, bf16, false);
  for (const int64_t n : {256, 768, 2048}) product_row(arguments, n);
  const Array wide(f32, arguments.count), narrow(bf16, arguments.count);
  measure(arguments, "sum of squares float32", 4, [&](int64_t first, int64_t count) {
    k::NormSum sum;
    k::sum_of_squares(sum, wide.at(first), f32, count, 0);
  });
  measure(arguments, "sum of squares bf16", 2, [&](int64_t first, int64_t count) {
    k::NormSum sum;
    k::sum_of_squares(sum, narrow.at(first), bf16, count, 0);
  });
  measure(arguments, "convert float32 -> bf16", 6, [&](int64_t first, int64_t count) {
    k::convert(narrow.at(first), bf16, wide.at(first), f32, count);
  });
  measure(arguments, "convert bf16 -> float32", 6, [&](int64_t first, int64_t count) {
    k::convert(wide.at(first), f32, narrow.at(first), bf16, count);
  });
  return 0;
}
