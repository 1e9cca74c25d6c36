// SPDX-License-Identifier: Apache-2.0
// cuda_test.cpp's kernels on the device that liboutrigger_cuda.so opens: a GPU, or the mock driver.
// What a kernel may touch is laid out on the host as it will lie there, goes there as one copy, and
// comes back as one; what lies between the arrays must come back as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "core/device/plugin_described.h"
#include "plugin_table.h"
#include "tests/kernels/cuda_runner.h"

namespace outrigger::kernels::test::runner {
namespace {

using outrigger::cuda::need;
using outrigger::cuda::table;

constexpr size_t kRoom = size_t{256} << 20, kAlignment = 256, kGap = 256;
constexpr unsigned char kBetween = 0xA5;

class There {
 public:
  There() {
    need(table().open(0, &device_));
    need(table().allocate(device_, kRoom, OTR_PLUGIN_NO_STREAM, &memory_));
  }
  ~There() {
    static_cast<void>(table().release(device_, memory_, OTR_PLUGIN_NO_STREAM));
    table().close(device_);
  }
  There(const There&) = delete;
  There& operator=(const There&) = delete;
  [[nodiscard]] otr_plugin_device* device() const { return device_; }
  [[nodiscard]] std::byte* memory() const { return static_cast<std::byte*>(memory_); }

 private:
  otr_plugin_device* device_ = nullptr;
  void* memory_ = nullptr;
};

There& there() {
  static There one;
  return one;
}

// The arrays of one call.
class Arrays {
 public:
  // Where an array of the host's will be there, off alignment as far as it is here. An array that
  // is named twice is there once.
  void* place(const void* here, size_t bytes, bool is_const) {
    if (here == nullptr) return nullptr;
    auto* const host = static_cast<std::byte*>(const_cast<void*>(here));
    for (Piece& piece : pieces_) {
      if (piece.host != host) continue;
      piece.is_const = piece.is_const && is_const;
      return there().memory() + piece.at;
    }
    const size_t shift = reinterpret_cast<uintptr_t>(host) % kAlignment;
    const size_t at = (image_.size() + kAlignment - 1) / kAlignment * kAlignment + shift;
    image_.resize(at, std::byte{kBetween});
    image_.insert(image_.end(), host, host + bytes);
    image_.resize(image_.size() + kGap, std::byte{kBetween});
    if (image_.size() > kRoom) throw std::runtime_error("the arrays of a test are too large");
    pieces_.push_back({host, bytes, at, is_const});
    return there().memory() + at;
  }
  void up() {
    need(table().copy(there().device(), there().memory(), image_.data(), image_.size(),
                      OTR_PLUGIN_HOST_TO_DEVICE, 0));
  }
  // What may have changed comes back; nothing else has.
  void down() {
    std::vector<std::byte> now(image_.size());
    need(table().copy(there().device(), now.data(), there().memory(), now.size(),
                      OTR_PLUGIN_DEVICE_TO_HOST, 0));
    need(table().synchronize(there().device()));
    size_t from = 0;
    const auto expect_untouched = [&](size_t to) {
      EXPECT_TRUE(std::equal(now.begin() + static_cast<std::ptrdiff_t>(from),
                             now.begin() + static_cast<std::ptrdiff_t>(to),
                             image_.begin() + static_cast<std::ptrdiff_t>(from)))
          << "the kernel has written between " << from << " and " << to << ", where nothing is its";
    };
    for (const Piece& piece : pieces_) {
      if (piece.is_const) continue;
      expect_untouched(piece.at);
      std::copy_n(now.begin() + static_cast<std::ptrdiff_t>(piece.at), piece.bytes, piece.host);
      from = piece.at + piece.bytes;
    }
    expect_untouched(now.size());
  }

 private:
  struct Piece {
    std::byte* host;
    size_t bytes, at;
    bool is_const;
  };
  std::vector<Piece> pieces_;
  std::vector<std::byte> image_;
};

template <class T>
T* place(Arrays& arrays, T* here, Format format, int64_t count) {
  const auto bytes = static_cast<size_t>(plain_bytes_of(count, format));
  return static_cast<T*>(arrays.place(here, bytes, std::is_const_v<T>));
}
float* place_scales(Arrays& arrays, float* here, Format format, int64_t count) {
  const auto bytes = static_cast<size_t>(scale_bytes_of(count, format));
  return static_cast<float*>(arrays.place(here, bytes, false));
}

// The update with its arrays there.
otr_plugin_update placed(const Update& u, Arrays& arrays) {
  Update p = u;
  p.grad = place(arrays, u.grad, u.grad_format, u.count);
  p.weight = place(arrays, u.weight, u.weight_format, u.count);
  p.remainder = place(arrays, u.remainder, Format::split, u.count);
  p.exp_avg = place(arrays, u.exp_avg, u.exp_avg_format, u.count);
  p.exp_avg_sq = place(arrays, u.exp_avg_sq, u.exp_avg_sq_format, u.count);
  p.published = place(arrays, u.published, u.published_format, u.count);
  p.exp_avg_scales = place_scales(arrays, u.exp_avg_scales, u.exp_avg_format, u.count);
  p.exp_avg_sq_scales = place_scales(arrays, u.exp_avg_sq_scales, u.exp_avg_sq_format, u.count);
  return device::described(p);
}

int64_t extent_of(const cuda::Conversion& c, const int64_t* strides) {
  if (c.ndim == 0) return c.count;
  int64_t last = 0;
  for (int32_t d = 0; d < c.ndim; ++d) last += (c.shape[d] - 1) * strides[d];
  return last + 1;
}

}  // namespace

UpdateCount update(const Update& u) {
  Arrays arrays;
  const otr_plugin_update p = placed(u, arrays);
  otr_plugin_update_count total{};
  arrays.up();
  need(table().update(there().device(), &p, 1, &total, 0));
  arrays.down();
  return {total.updates, total.vanished};
}

void lamb_norms(const Update& u, NormSum& weights, NormSum& directions) {
  Arrays arrays;
  otr_plugin_update p = placed(u, arrays);
  otr_plugin_norm norms[2] = {};
  p.rule = OTR_PLUGIN_LAMB_NORMS;
  p.norms = norms;
  arrays.up();
  need(table().update(there().device(), &p, 1, nullptr, 0));
  arrays.down();
  merge(weights, device::sum_of(norms[0]));
  merge(directions, device::sum_of(norms[1]));
}

void muon_direction(const Update& u, float* direction) {
  Arrays arrays;
  otr_plugin_update p = placed(u, arrays);
  p.direction = place(arrays, direction, Format::float32, u.count);
  arrays.up();
  need(table().update(there().device(), &p, 1, nullptr, 0));
  arrays.down();
}

Origin fold(const Fold& fold) {
  Arrays arrays;
  std::vector<const void*> sources;
  for (int32_t i = 0; i < fold.world; ++i) {
    sources.push_back(place(arrays, fold.sources[i], fold.source_format, fold.count));
  }
  otr_plugin_norm norm{};
  otr_plugin_fold p{};
  p.struct_size = sizeof p;
  p.sources = sources.data();
  p.world = fold.world;
  p.source_format = static_cast<int32_t>(fold.source_format);
  p.accumulator = place(arrays, fold.accumulator, fold.accumulator_format, fold.count);
  p.accumulator_format = static_cast<int32_t>(fold.accumulator_format);
  p.add = fold.add ? 1 : 0;
  p.count = fold.count;
  p.first_index = fold.first_index;
  p.norm = &norm;
  arrays.up();
  need(table().fold(there().device(), &p, 0));
  arrays.down();
  if (fold.count == 0) return {};
  if (fold.norm != nullptr) merge(*fold.norm, device::sum_of(norm));
  return {norm.first_nonfinite, norm.first_rank};
}

void convert(const cuda::Conversion& c) {
  Arrays arrays;
  otr_plugin_convert p =
      device::described(place(arrays, c.to, c.to_format, extent_of(c, c.to_strides)), c.to_format,
                        place(arrays, c.from, c.from_format, extent_of(c, c.from_strides)),
                        c.from_format, c.factor, c.count);
  p.add = c.add ? 1 : 0;
  if (c.ndim > 0) {
    p.ndim = c.ndim;
    p.shape = c.shape;
    p.to_strides = c.to_strides;
    p.from_strides = c.from_strides;
  }
  arrays.up();
  need(table().convert(there().device(), &p, 1, 0));
  arrays.down();
}

void product(const Product& given) {
  Arrays arrays;
  const auto placed = [&](auto* here, int64_t rows, int64_t columns) {
    return place(arrays, here, Format::float32, rows * columns);
  };
  otr_plugin_product p{};
  p.struct_size = sizeof p;
  p.left = placed(given.left, given.rows, given.inner);
  p.right = placed(given.right, given.inner, given.columns);
  p.plus = placed(given.plus, given.rows, given.columns);
  p.out = placed(given.out, given.rows, given.columns);
  p.rows = given.rows;
  p.inner = given.inner;
  p.columns = given.columns;
  p.factor = given.factor;
  p.plus_factor = given.plus_factor;
  arrays.up();
  need(table().product(there().device(), &p, 0));
  arrays.down();
}

}  // namespace outrigger::kernels::test::runner
