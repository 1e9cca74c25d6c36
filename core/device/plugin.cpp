// SPDX-License-Identifier: Apache-2.0
#include "core/device/plugin.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"

namespace outrigger::device {
namespace {

int32_t code_of(Format format) { return static_cast<int32_t>(format); }
static_assert(static_cast<int32_t>(Format::float32) == OTR_PLUGIN_FLOAT32 &&
              static_cast<int32_t>(Format::bfloat16) == OTR_PLUGIN_BFLOAT16 &&
              static_cast<int32_t>(Format::float16) == OTR_PLUGIN_FLOAT16 &&
              static_cast<int32_t>(Format::float64) == OTR_PLUGIN_FLOAT64);
int32_t code_of(kernels::Rounding rounding) { return static_cast<int32_t>(rounding); }
static_assert(static_cast<int32_t>(kernels::Rounding::nearest) == OTR_PLUGIN_NEAREST &&
              static_cast<int32_t>(kernels::Rounding::stochastic) == OTR_PLUGIN_STOCHASTIC);

int32_t rule_code_of(kernels::Rule rule) {
  static_assert(static_cast<int32_t>(kernels::Rule::sgd) == OTR_PLUGIN_SGD);
  return static_cast<int32_t>(rule);
}

otr_plugin_update described(const kernels::Update& a) {
  const kernels::UpdateScalars& s = a.scalars;
  otr_plugin_update p{};
  p.rule = rule_code_of(a.rule);
  p.grad = a.grad;
  p.weight = a.weight;
  p.exp_avg = a.exp_avg;
  p.exp_avg_sq = a.exp_avg_sq;
  p.published = a.published;
  p.grad_format = code_of(a.grad_format);
  p.weight_format = code_of(a.weight_format);
  p.exp_avg_format = code_of(a.exp_avg_format);
  p.exp_avg_sq_format = code_of(a.exp_avg_sq_format);
  p.published_format = code_of(a.published_format);
  p.weight_rounding = code_of(a.weight_rounding);
  p.exp_avg_rounding = code_of(a.exp_avg_rounding);
  p.exp_avg_sq_rounding = code_of(a.exp_avg_sq_rounding);
  p.count = a.count;
  p.gradient_factor = s.gradient_factor;
  p.clip_value = s.clip_value;
  p.beta1 = s.beta1;
  p.one_minus_beta1 = s.one_minus_beta1;
  p.beta2 = s.beta2;
  p.one_minus_beta2 = s.one_minus_beta2;
  p.eps = s.eps;
  p.inverse_sqrt_bias2 = s.inverse_sqrt_bias2;
  p.minus_step = s.minus_step;
  p.weight_decay = s.weight_decay;
  p.minus_lr_decay = s.minus_lr_decay;
  p.decoupled = s.decoupled ? 1 : 0;
  p.nesterov = s.nesterov ? 1 : 0;
  p.key = a.random.key;
  p.first_element = a.random.first_element;
  p.step = a.random.step;
  return p;
}

otr_plugin_convert described(void* to, Format to_format, const void* from, Format from_format,
                             float factor, int64_t count) {
  otr_plugin_convert c{};
  c.to = to;
  c.from = from;
  c.to_format = code_of(to_format);
  c.from_format = code_of(from_format);
  c.count = count;
  c.factor = factor;
  return c;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

}  // namespace

PluginDevice::PluginDevice(const Plugin& plugin, int32_t device_id)
    : table_(plugin.table), device_id_(device_id) {
  check(table_->open(device_id, &device_), "opening");
}

PluginDevice::~PluginDevice() {
  for (const Stream stream : streams_) {
    if (stream != 0) table_->stream_destroy(device_, stream);
  }
  table_->close(device_);
}

Stream PluginDevice::stream(size_t index) const {
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_.at(index);
  if (stream == 0) check(table_->stream_create(device_, &stream), "a stream");
  return stream;
}

void PluginDevice::check(int32_t status, const char* what) const {
  if (status == OTR_OK) return;
  const char* text = table_->last_error();
  fail(status, "{} on {} device {} failed: {}", what, table_->name, device_id_,
       text == nullptr || *text == '\0' ? otr_status_name(status) : text);
}

void PluginDevice::set_value(const char* name, double value) {
  check(table_->set_value(device_, name, value), "setting a value");
}

double PluginDevice::value(const char* name) const {
  double value = 0;
  check(table_->get_value(device_, name, &value), "reading a value");
  return value;
}

Event PluginDevice::record(Stream stream) {
  otr_plugin_event* event = nullptr;
  check(table_->event_record(device_, stream, &event), "an event");
  return {event,
          [this](void* e) { table_->event_destroy(device_, static_cast<otr_plugin_event*>(e)); }};
}

void PluginDevice::wait(Stream stream, const Event& event) {
  if (!event) return;
  check(table_->stream_wait(device_, stream, static_cast<otr_plugin_event*>(event.get())),
        "waiting for an event");
}

void PluginDevice::synchronize(Stream stream) {
  check(table_->stream_synchronize(device_, stream), "work");
}

void PluginDevice::synchronize(const Event& event) {
  if (!event) return;
  check(table_->event_synchronize(device_, static_cast<otr_plugin_event*>(event.get())), "work");
}

void PluginDevice::download(void* host, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(table_->copy(device_, host, from, bytes, OTR_PLUGIN_DEVICE_TO_HOST, stream),
        "a copy to the host");
}

void PluginDevice::upload(void* to, const void* host, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(table_->copy(device_, to, host, bytes, OTR_PLUGIN_HOST_TO_DEVICE, stream),
        "a copy from the host");
}

void PluginDevice::copy(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0 || to == from) return;
  check(table_->copy(device_, to, from, bytes, OTR_PLUGIN_ON_DEVICE, stream), "a copy");
}

void PluginDevice::zero(void* data, size_t bytes, Stream stream) {
  if (bytes > 0) check(table_->zero(device_, data, bytes, stream), "clearing memory");
}

void PluginDevice::convert(void* to, Format to_format, const void* from, Format from_format,
                           float factor, int64_t count, Stream stream) {
  if (count == 0) return;
  const auto c = described(to, to_format, from, from_format, factor, count);
  check(table_->convert(device_, &c, stream), "a conversion");
}

void PluginDevice::add(void* to, Format to_format, const void* from, Format from_format,
                       int64_t count, Stream stream) {
  if (count == 0) return;
  auto c = described(to, to_format, from, from_format, 1, count);
  c.add = 1;
  check(table_->convert(device_, &c, stream), "an addition");
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
  check(table_->convert(device_, &c, stream), "reading a tensor");
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
  check(table_->convert(device_, &c, stream), "writing a tensor");
}

kernels::NormSum PluginDevice::run(const otr_plugin_fold& given, Nonfinite* origin) {
  kernels::NormSum sum;
  if (given.count == 0) return sum;
  otr_plugin_norm norm{};
  otr_plugin_fold fold = given;
  fold.norm = &norm;
  check(table_->fold(device_, &fold, own_stream()), "a sum over ranks");
  synchronize(own_stream());
  std::copy(std::begin(norm.limbs), std::end(norm.limbs), sum.limbs.begin());
  sum.nonfinite = norm.nonfinite;
  sum.first_nonfinite = norm.first_nonfinite;
  if (origin != nullptr) keep_first(*origin, {norm.first_nonfinite, norm.first_rank});
  return sum;
}

kernels::NormSum PluginDevice::fold(const SliceFold& slice, Nonfinite& origin) {
  otr_plugin_fold fold{};
  fold.sources = slice.sources.data();
  fold.world = static_cast<int32_t>(slice.sources.size());
  fold.source_format = code_of(slice.source_format);
  fold.accumulator = slice.accumulator;
  fold.accumulator_format = code_of(slice.accumulator_format);
  fold.add = slice.add ? 1 : 0;
  fold.count = slice.count;
  fold.first_index = slice.flat;
  return run(fold, &origin);
}

kernels::NormSum PluginDevice::norm(const void* data, Format format, int64_t count, int64_t flat) {
  otr_plugin_fold fold{};
  fold.accumulator = const_cast<void*>(data);  // only read, as there are no sources
  fold.accumulator_format = code_of(format);
  fold.count = count;
  fold.first_index = flat;
  return run(fold, nullptr);
}

kernels::UpdateCount PluginDevice::update(std::span<const kernels::Update> pieces) {
  std::vector<otr_plugin_update> list;
  list.reserve(pieces.size());
  for (const kernels::Update& piece : pieces) list.push_back(described(piece));
  otr_plugin_update_count total{};
  try {
    check(table_->update(device_, list.data(), static_cast<int64_t>(list.size()), &total,
                         own_stream()),
          "the update");
  } catch (const Error&) {
    drain();  // what was taken on before writes to `total`
    throw;
  }
  synchronize(own_stream());
  return {total.updates, total.vanished};
}

}  // namespace outrigger::device
