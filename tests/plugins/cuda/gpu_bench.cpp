// SPDX-License-Identifier: Apache-2.0
// How fast a GPU's kernels are, beside a copy on the device in the same run: one line of JSON a
// row.
//   bench_gpu_kernels [MILLIONS OF ELEMENTS [TEXT]]      TEXT: only rows with this in their names
// Times are the device's own, by events around one launch after another over memory that is many
// times its cache, with results in its memory, as a step that nobody waits for has them; medians.
// scripts/gpu/bench.sh runs it.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/device/plugin_described.h"
#include "plugin_table.h"
#include "plugins/cuda/driver.h"

namespace {

using namespace outrigger;  // NOLINT(google-build-using-namespace)
using cuda::need;
using cuda::table;
using kernels::Format;
using kernels::Rounding;

constexpr int kRounds = 25;

template <typename... P>
void call(const cuda::Entry<P...>& entry, std::type_identity_t<P>... arguments) {
  const cuda::Result result = entry.at(arguments...);
  if (result != cuda::kSuccess)
    throw std::runtime_error(text_of(cuda::driver(), entry.name, result));
}

// CUDA's own functions for times, which the plugin has no use for.
struct Clock {
  cuda::Entry<cuda::Event*, unsigned> create{"cuEventCreate"};
  cuda::Entry<float*, cuda::Event, cuda::Event> elapsed{"cuEventElapsedTime"};
  cuda::Entry<cuda::Context> set_current{"cuCtxSetCurrent"};
};

class Bench {
 public:
  explicit Bench(int64_t count) : count_(count) {
    need(table().open(0, &device_));
    need(table().stream_create(device_, &stream_));
    void* library = dlopen(cuda::driver().path.c_str(), RTLD_NOW | RTLD_LOCAL);
    find(library, clock_.create);
    find(library, clock_.elapsed);
    find(library, clock_.set_current);
    cuda::Ordinal ordinal = 0;
    cuda::Context context = nullptr;
    call(cuda::driver().cuDeviceGet, &ordinal, 0);
    char name[256] = {};
    call(cuda::driver().cuDeviceGetName, name, 255, ordinal);
    call(cuda::driver().cuDevicePrimaryCtxRetain, &context, ordinal);
    call(clock_.set_current, context);
    call(clock_.create, &begin_, 0U);
    call(clock_.create, &end_, 0U);
    std::printf("{\"row\": \"device\", \"name\": \"%s\", \"driver\": %d}\n", name,
                cuda::driver().version);
  }

  void* memory(size_t bytes) {
    void* data = nullptr;
    need(table().allocate(device_, bytes, OTR_PLUGIN_NO_STREAM, &data));
    return data;
  }
  void free(void* data) { need(table().release(device_, data, OTR_PLUGIN_NO_STREAM)); }

  // Numbers of a training's size, in this format, drawn anew.
  void* numbers(Format format, float scale, bool positive = false) {
    constexpr int64_t kDrawn = 1 << 20;
    std::normal_distribution<float> normal;
    std::vector<float> drawn(kDrawn);
    for (float& x : drawn) {
      x = normal(random_) * scale;
      if (positive) x *= x;
    }
    void* const from = memory(kDrawn * sizeof(float));
    need(table().copy(device_, from, drawn.data(), kDrawn * sizeof(float),
                      OTR_PLUGIN_HOST_TO_DEVICE, stream_));
    void* const all = memory(static_cast<size_t>(count_) * kernels::size_of(format));
    for (int64_t at = 0; at < count_; at += kDrawn) {
      auto* const to =
          static_cast<std::byte*>(all) + static_cast<size_t>(at) * kernels::size_of(format);
      const auto c =
          device::described(to, format, from, Format::float32, 1, std::min(kDrawn, count_ - at));
      need(table().convert(device_, &c, 1, stream_));
    }
    need(table().stream_synchronize(device_, stream_));
    free(from);
    return all;
  }

  // Seconds of the device, of one round after a first one that is not counted.
  std::vector<double> times(const std::function<void()>& work, int rounds = kRounds) {
    const auto stream = reinterpret_cast<cuda::Stream>(static_cast<uintptr_t>(stream_));
    std::vector<double> all;
    for (int round = -2; round < rounds; ++round) {
      call(cuda::driver().cuEventRecord, begin_, stream);
      work();
      call(cuda::driver().cuEventRecord, end_, stream);
      call(cuda::driver().cuEventSynchronize, end_);
      float milliseconds = 0;
      call(clock_.elapsed, &milliseconds, begin_, end_);
      if (round >= 0) all.push_back(milliseconds / 1e3);
    }
    return all;
  }
  static double median(std::vector<double> all) {
    std::ranges::sort(all);
    return all[all.size() / 2];
  }

  [[nodiscard]] double copy_speed() {
    if (copy_from_ == nullptr) {
      copy_from_ = numbers(Format::float32, 1);
      copy_to_ = memory(static_cast<size_t>(count_) * 4);
    }
    const auto bytes = static_cast<size_t>(count_) * 4;
    const double seconds = median(times([&] {
      need(table().copy(device_, copy_to_, copy_from_, bytes, OTR_PLUGIN_ON_DEVICE, stream_));
    }));
    return 2.0 * static_cast<double>(bytes) / seconds;
  }

  std::string only;  // a part of the rows' names
  [[nodiscard]] bool is_wanted(const std::string& name) const {
    return name.find(only) != std::string::npos;
  }

  // The row's bytes in a second, beside what a copy moved just before and just after.
  void row(const char* name, double bytes_of_element, const std::function<void()>& work) {
    const double before = copy_speed();
    const std::vector<double> all = times(work);
    const double copy = (before + copy_speed()) / 2;
    const double seconds = median(all);
    const double speed = bytes_of_element * static_cast<double>(count_) / seconds;
    std::printf(
        "{\"row\": \"%s\", \"bytes\": %.4g, \"elements\": %lld, \"seconds\": %.6g, "
        "\"least\": %.6g, \"bytes_per_second\": %.4g, \"copy\": %.4g, \"of_copy\": %.3f}\n",
        name, bytes_of_element, static_cast<long long>(count_), seconds,
        *std::ranges::min_element(all), speed, copy, speed / copy);
    std::fflush(stdout);
  }

  [[nodiscard]] otr_plugin_device* device() const { return device_; }
  [[nodiscard]] uint64_t stream() const { return stream_; }
  [[nodiscard]] int64_t count() const { return count_; }

 private:
  template <typename... P>
  static void find(void* library, cuda::Entry<P...>& entry) {
    entry.at = reinterpret_cast<cuda::Result (*)(P...)>(dlsym(library, entry.name));
    if (entry.at == nullptr) throw std::runtime_error(std::string("no ") + entry.name);
  }
  int64_t count_;
  otr_plugin_device* device_ = nullptr;
  uint64_t stream_ = 0;
  Clock clock_;
  cuda::Event begin_ = nullptr, end_ = nullptr;
  std::mt19937_64 random_{std::random_device{}()};
  void *copy_from_ = nullptr, *copy_to_ = nullptr;
};

struct States {
  Format weight = Format::float32, exp_avg = Format::float32, exp_avg_sq = Format::float32;
  Rounding rounding = Rounding::nearest;
  Format grad = Format::bfloat16;
  bool publish = true;
};

kernels::UpdateScalars scalars() {
  kernels::UpdateScalars s;
  s.gradient_factor = 0.37F;
  s.inverse_sqrt_bias2 = 1.7F;
  s.minus_step = -3e-3F;
  s.weight_decay = 0.05F;
  s.minus_lr_decay = -1e-4F;
  s.decoupled = true;
  return s;
}

// The arrays of one parameter of count elements, and its update.
class Parameter {
 public:
  Parameter(Bench& bench, const States& states) : bench_(bench) {
    const bool split = states.weight == Format::split;
    u_.count = bench.count();
    u_.grad_format = states.grad;
    u_.weight_format = split ? Format::bfloat16 : states.weight;
    u_.exp_avg_format = states.exp_avg;
    u_.exp_avg_sq_format = states.exp_avg_sq;
    u_.weight_rounding = u_.exp_avg_rounding = u_.exp_avg_sq_rounding = states.rounding;
    u_.grad = take(bench.numbers(states.grad, 0.1F));
    u_.weight = take(bench.numbers(u_.weight_format, 0.1F));
    u_.exp_avg = take(moment(states.exp_avg, false, u_.exp_avg_scales));
    u_.exp_avg_sq = take(moment(states.exp_avg_sq, true, u_.exp_avg_sq_scales));
    if (split) u_.remainder = static_cast<uint16_t*>(take(bench.memory(size_t(u_.count) * 2)));
    if (states.publish) {
      u_.published_format = Format::bfloat16;
      u_.published = take(bench.memory(size_t(u_.count) * 2));
    }
    u_.scalars = scalars();
    u_.random.key = 0x1234;
  }
  ~Parameter() {
    for (void* data : taken_) bench_.free(data);
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  [[nodiscard]] const kernels::Update& update() const { return u_; }
  void step() {
    ++u_.random.step;
    const otr_plugin_update p = device::described(u_);
    need(table().update(bench_.device(), &p, 1, nullptr, bench_.stream()));
  }

 private:
  void* take(void* data) {
    taken_.push_back(data);
    return data;
  }
  // Blocks begin as zeros; the first step, which is not counted, gives them values.
  void* moment(Format format, bool positive, float*& scales) {
    if (!kernels::is_block(format)) return bench_.numbers(format, 0.1F, positive);
    scales = static_cast<float*>(
        take(bench_.memory(static_cast<size_t>(kernels::scale_bytes_of(u_.count, format)))));
    return bench_.memory(static_cast<size_t>(kernels::plain_bytes_of(u_.count, format)));
  }
  Bench& bench_;
  kernels::Update u_;
  std::vector<void*> taken_;
};

void update_row(Bench& bench, const char* name, double bytes, const States& states) {
  if (!bench.is_wanted(name)) return;
  Parameter parameter(bench, states);
  bench.row(name, bytes, [&] { parameter.step(); });
}

// The same elements as `tensors` parameters of as many each, in one list.
void small_tensors(Bench& bench, int64_t tensors) {
  if (!bench.is_wanted(std::to_string(tensors) + " tensors")) return;
  Parameter whole(bench, {.grad = Format::float32, .publish = false});
  const int64_t each = whole.update().count / tensors;
  std::vector<otr_plugin_update> list;
  for (int64_t i = 0; i < tensors; ++i) {
    kernels::Update u = whole.update();
    const auto move = [&](auto*& data) {
      data = reinterpret_cast<std::remove_reference_t<decltype(data)>>(
          reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(4 * i * each));
    };
    move(u.grad);
    move(u.weight);
    move(u.exp_avg);
    move(u.exp_avg_sq);
    u.count = each;
    list.push_back(device::described(u));
  }
  double enqueue = 0;
  const std::vector<double> all = bench.times([&] {
    const auto begin = std::chrono::steady_clock::now();
    need(table().update(bench.device(), list.data(), tensors, nullptr, bench.stream()));
    enqueue = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  });
  std::printf(
      "{\"row\": \"%lld tensors of %lld, all float32\", \"seconds\": %.6g, \"enqueue\": %.6g, "
      "\"bytes_per_second\": %.4g}\n",
      static_cast<long long>(tensors), static_cast<long long>(each), Bench::median(all), enqueue,
      28.0 * static_cast<double>(tensors * each) / Bench::median(all));
}

void norm_row(Bench& bench, const char* name, Format format) {
  if (!bench.is_wanted(name)) return;
  void* const data = bench.numbers(format, 1);
  void* const sum = bench.memory(OTR_PLUGIN_SUM_BYTES);
  otr_plugin_fold fold{};
  fold.struct_size = sizeof fold;
  fold.accumulator = data;
  fold.accumulator_format = static_cast<int32_t>(format);
  fold.count = bench.count();
  fold.sum = sum;
  bench.row(name, static_cast<double>(kernels::size_of(format)),
            [&] { need(table().fold(bench.device(), &fold, bench.stream())); });
  bench.free(data);
  bench.free(sum);
}

void fold_row(Bench& bench, const char* name, int32_t world) {
  if (!bench.is_wanted(name)) return;
  std::vector<void*> ranks;
  for (int32_t r = 0; r < world; ++r) ranks.push_back(bench.numbers(Format::bfloat16, 1));
  void* const sum = bench.memory(static_cast<size_t>(bench.count()) * 4);
  void* const norm = bench.memory(OTR_PLUGIN_SUM_BYTES);
  otr_plugin_fold fold{};
  fold.struct_size = sizeof fold;
  fold.sources = const_cast<const void* const*>(ranks.data());
  fold.world = world;
  fold.source_format = OTR_PLUGIN_BFLOAT16;
  fold.accumulator = sum;
  fold.accumulator_format = OTR_PLUGIN_FLOAT32;
  fold.count = bench.count();
  fold.sum = norm;
  bench.row(name, 2.0 * world + 4,
            [&] { need(table().fold(bench.device(), &fold, bench.stream())); });
  for (void* data : ranks) bench.free(data);
  bench.free(sum);
  bench.free(norm);
}

void convert_row(Bench& bench, const char* name, Format to, Format from, bool add) {
  if (!bench.is_wanted(name)) return;
  void* const source = bench.numbers(from, 1);
  void* const target = bench.numbers(to, 1);
  auto c = device::described(target, to, source, from, 1, bench.count());
  c.add = add ? 1 : 0;
  bench.row(name,
            static_cast<double>(kernels::size_of(from) + (add ? 2 : 1) * kernels::size_of(to)),
            [&] { need(table().convert(bench.device(), &c, 1, bench.stream())); });
  bench.free(source);
  bench.free(target);
}

void link_rows(Bench& bench) {
  if (!bench.is_wanted("page-locked")) return;
  constexpr size_t kBytes = size_t{512} << 20;
  const std::unique_ptr<void, decltype(&std::free)> host(std::aligned_alloc(4096, 2 * kBytes),
                                                         &std::free);
  std::fill_n(static_cast<std::byte*>(host.get()), 2 * kBytes, std::byte{1});
  need(table().pin(bench.device(), host.get(), 2 * kBytes));
  auto* const there = static_cast<std::byte*>(bench.memory(2 * kBytes));
  uint64_t other = 0;
  need(table().stream_create(bench.device(), &other));
  const auto up = [&](uint64_t stream) {
    need(
        table().copy(bench.device(), there, host.get(), kBytes, OTR_PLUGIN_HOST_TO_DEVICE, stream));
  };
  const auto down = [&](uint64_t stream) {
    need(table().copy(bench.device(), static_cast<std::byte*>(host.get()) + kBytes, there + kBytes,
                      kBytes, OTR_PLUGIN_DEVICE_TO_HOST, stream));
  };
  const auto show = [&](const char* name, double bytes, const std::function<void()>& work) {
    const double seconds = Bench::median(bench.times(work, 9));
    std::printf("{\"row\": \"%s\", \"seconds\": %.6g, \"bytes_per_second\": %.4g}\n", name, seconds,
                bytes / seconds);
  };
  show("host to device, page-locked", kBytes, [&] { up(bench.stream()); });
  show("device to host, page-locked", kBytes, [&] { down(bench.stream()); });
  show("both directions together", 2.0 * kBytes, [&] {
    otr_plugin_event* event = nullptr;
    need(table().event_record(bench.device(), bench.stream(), &event));
    need(table().stream_wait(bench.device(), other, event));
    table().event_destroy(bench.device(), event);
    up(bench.stream());
    down(other);
    need(table().event_record(bench.device(), other, &event));
    need(table().stream_wait(bench.device(), bench.stream(), event));
    table().event_destroy(bench.device(), event);
  });
  need(table().synchronize(bench.device()));
  table().unpin(bench.device(), host.get());
  table().stream_destroy(bench.device(), other);
  bench.free(there);
}

void run(int64_t count, const std::string& only) {
  Bench bench(count);
  bench.only = only;
  constexpr Format kBf16 = Format::bfloat16;
  constexpr Rounding kStochastic = Rounding::stochastic;
  update_row(bench, "float32 states, bfloat16 gradient and publish", 28, {});
  update_row(bench, "float32 states and gradient, no publish", 28,
             {.grad = Format::float32, .publish = false});
  update_row(bench, "split weight, bfloat16 moments", 18,
             {.weight = Format::split, .exp_avg = kBf16, .exp_avg_sq = kBf16, .publish = false});
  update_row(bench, "all bfloat16, nearest", 14,
             {.weight = kBf16, .exp_avg = kBf16, .exp_avg_sq = kBf16, .publish = false});
  const States bf16{.weight = kBf16,
                    .exp_avg = kBf16,
                    .exp_avg_sq = kBf16,
                    .rounding = kStochastic,
                    .publish = false};
  update_row(bench, "all bfloat16, stochastic", 14, bf16);
  States block8 = bf16;
  block8.exp_avg = Format::block8;
  block8.exp_avg_sq = Format::positive_block8;
  update_row(bench, "bfloat16 stochastic weight, 8-bit moments", 10 + 16.0 / 256, block8);
  norm_row(bench, "norm and Inf, bfloat16", kBf16);
  norm_row(bench, "norm and Inf, float32", Format::float32);
  fold_row(bench, "sum of 2 ranks' bfloat16 into float32, with norm", 2);
  fold_row(bench, "sum of 8 ranks' bfloat16 into float32, with norm", 8);
  convert_row(bench, "bfloat16 to float32", Format::float32, kBf16, false);
  convert_row(bench, "float32 to bfloat16", kBf16, Format::float32, false);
  convert_row(bench, "bfloat16 added to float32", Format::float32, kBf16, true);
  small_tensors(bench, 300);
  small_tensors(bench, 10000);
  link_rows(bench);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    run((count > 1 ? std::strtoll(arguments[1], nullptr, 10) : 64) << 20,
        count > 2 ? arguments[2] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_gpu_kernels: %s\n", error.what());
    return 1;
  }
}
