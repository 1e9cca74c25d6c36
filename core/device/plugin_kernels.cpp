// SPDX-License-Identifier: Apache-2.0
// What a plugin's kernels are given: the library's work in the table's structs.
#include <algorithm>
#include <array>
#include <vector>

#include "core/base/error.h"
#include "core/device/plugin.h"
#include "core/device/plugin_described.h"

namespace outrigger::device {
namespace {

std::vector<int64_t> row_major(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

}  // namespace

void PluginDevice::convert(void* to, Format to_format, const void* from, Format from_format,
                           float factor, int64_t count, Stream stream) {
  if (count == 0) return;
  const auto c = described(to, to_format, from, from_format, factor, count);
  check(table_.convert(device_, &c, 1, stream), "a conversion");
}

void PluginDevice::convert_all(std::span<const Conversion> list, Stream stream) {
  std::vector<otr_plugin_convert> given;
  given.reserve(list.size());
  for (const Conversion& c : list) {
    if (c.count == 0) continue;
    given.push_back(described(c.to, c.to_format, c.from, c.from_format, c.factor, c.count));
  }
  if (given.empty()) return;
  check(table_.convert(device_, given.data(), static_cast<int64_t>(given.size()), stream),
        "conversions");
}

void PluginDevice::add(void* to, Format to_format, const void* from, Format from_format,
                       int64_t count, Stream stream) {
  if (count == 0) return;
  auto c = described(to, to_format, from, from_format, 1, count);
  c.add = 1;
  check(table_.convert(device_, &c, 1, stream), "an addition");
}

void PluginDevice::to_blocks(void*, const void*, Format, int64_t) {
  fail(OTR_E_UNSUPPORTED, "{}: 8-bit blocks of gradients are made in host memory only", name());
}

void PluginDevice::to_integers(void*, const void*, Format, int64_t) {
  fail(OTR_E_UNSUPPORTED, "{}: 8-bit integers are made in host memory only", name());
}

void PluginDevice::from_integers(void*, Format, const void*, int64_t) {
  fail(OTR_E_UNSUPPORTED, "{}: 8-bit integers are read in host memory only", name());
}

void PluginDevice::read(void* to, Format to_format, const tensor::View& from, float factor,
                        Stream stream) {
  auto c = described(to, to_format, from.data, from.format, factor, from.count);
  if (c.count == 0) return;
  const std::vector<int64_t> strides = row_major(from.shape);
  if (!from.contiguous) {
    c.ndim = static_cast<int32_t>(from.shape.size());
    c.shape = from.shape.data();
    c.to_strides = strides.data();
    c.from_strides = from.strides.data();
  }
  check(table_.convert(device_, &c, 1, stream), "reading a tensor");
}

void PluginDevice::write(const tensor::View& to, const void* from, Format from_format,
                         Stream stream) {
  auto c = described(to.data, to.format, from, from_format, 1, to.count);
  if (c.count == 0) return;
  const std::vector<int64_t> strides = row_major(to.shape);
  if (!to.contiguous) {
    c.ndim = static_cast<int32_t>(to.shape.size());
    c.shape = to.shape.data();
    c.to_strides = to.strides.data();
    c.from_strides = strides.data();
  }
  check(table_.convert(device_, &c, 1, stream), "writing a tensor");
}

kernels::NormSum PluginDevice::run(const otr_plugin_fold& given, Nonfinite* origin) {
  kernels::NormSum sum;
  if (given.count == 0) return sum;
  otr_plugin_norm norm{};
  otr_plugin_fold fold = given;
  fold.struct_size = sizeof fold;
  fold.norm = &norm;
  check(table_.fold(device_, &fold, own_stream()), "a sum over ranks");
  synchronize(record(own_stream()));
  sum = sum_of(norm);
  if (origin != nullptr) keep_first(*origin, {norm.first_nonfinite, norm.first_rank});
  return sum;
}

kernels::NormSum PluginDevice::fold(const SliceFold& slice, Nonfinite& origin) {
  return run(described(slice), &origin);
}

kernels::NormSum PluginDevice::norm(const void* data, Format format, int64_t count, int64_t flat) {
  otr_plugin_fold fold{};
  fold.accumulator = const_cast<void*>(data);  // only read, as there are no sources
  fold.accumulator_format = code_of(format);
  fold.count = count;
  fold.first_index = flat;
  return run(fold, nullptr);
}

void PluginDevice::run(std::span<const otr_plugin_update> list, otr_plugin_update_count& total) {
  if (list.empty()) return;
  try {
    check(table_.update(device_, list.data(), static_cast<int64_t>(list.size()), &total,
                        own_stream()),
          "the update");
  } catch (const Error&) {
    drain();  // what was taken on before writes to host memory
    throw;
  }
}

// The plugin adds to `total` as the device gets there.
class PluginDevice::Running final : public Updating {
 public:
  explicit Running(PluginDevice& device) : device_(device) {}
  ~Running() override {
    if (is_begun && !is_done_) device_.drain();
  }
  kernels::UpdateCount wait() override {
    device_.synchronize(done);
    is_done_ = true;
    return {total.updates, total.vanished};
  }
  otr_plugin_update_count total{};
  bool is_begun = false;
  Event done;

 private:
  PluginDevice& device_;
  bool is_done_ = false;
};

std::unique_ptr<Updating> PluginDevice::begin_update(std::span<const kernels::Update> pieces) {
  std::vector<otr_plugin_update> list;
  list.reserve(pieces.size());
  for (const kernels::Update& piece : pieces) list.push_back(described(piece));
  auto running = std::make_unique<Running>(*this);
  run(list, running->total);
  running->is_begun = true;
  running->done = record(own_stream());
  return running;
}

kernels::UpdateCount PluginDevice::update(std::span<const kernels::Update> pieces) {
  return begin_update(pieces)->wait();
}

std::vector<LambNorms> PluginDevice::lamb_norms(std::span<const kernels::Update> pieces) {
  std::vector<std::array<otr_plugin_norm, 2>> written(pieces.size());
  std::vector<otr_plugin_update> list;
  list.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    otr_plugin_update& p = list.emplace_back(described(pieces[i]));
    p.rule = OTR_PLUGIN_LAMB_NORMS;
    p.norms = written[i].data();
  }
  otr_plugin_update_count none{};
  run(list, none);
  synchronize(record(own_stream()));
  std::vector<LambNorms> norms;
  norms.reserve(written.size());
  for (const auto& [weights, directions] : written) {
    norms.push_back({sum_of(weights), sum_of(directions)});
  }
  return norms;
}

// A piece of a matrix that counts nothing.
void PluginDevice::muon_direction(const kernels::Update& piece, float* direction) {
  otr_plugin_update p = described(piece);
  p.direction = direction;
  if (piece.count > 0) check(table_.update(device_, &p, 1, nullptr, own_stream()), "a direction");
}

void PluginDevice::multiply(const kernels::Product& product, Symmetric symmetric) {
  otr_plugin_product p{};
  p.struct_size = sizeof p;
  p.symmetric = symmetric == Symmetric::yes ? 1 : 0;
  p.left = product.left;
  p.right = product.right;
  p.plus = product.plus;
  p.out = product.out;
  p.rows = product.rows;
  p.inner = product.inner;
  p.columns = product.columns;
  p.factor = product.factor;
  p.plus_factor = product.plus_factor;
  check(table_.product(device_, &p, own_stream()), "a product of matrices");
}

void PluginDevice::transpose(float* to, const float* from, int64_t rows, int64_t columns) {
  auto c = described(to, Format::float32, from, Format::float32, 1, rows * columns);
  const std::array<int64_t, 2> shape{columns, rows}, to_strides{rows, 1}, from_strides{1, columns};
  c.ndim = 2;
  c.shape = shape.data();
  c.to_strides = to_strides.data();
  c.from_strides = from_strides.data();
  check(table_.convert(device_, &c, 1, own_stream()), "a transposition");
}

}  // namespace outrigger::device
