// SPDX-License-Identifier: Apache-2.0
// Updates and products of matrices on a simulated device.
#include <vector>

#include "plugins/simulated/kernels.h"
#include "plugins/simulated/work.h"

namespace outrigger::simulated {
namespace {

// One piece, with memory as the device sees it.
struct Piece {
  kernels::Update update;
  int32_t rule;
  float* direction = nullptr;
  otr_plugin_norm* norms = nullptr;
};

void set_scalars(kernels::UpdateScalars& to, const otr_plugin_update& given) {
  to.gradient_factor = given.gradient_factor;
  to.clip_value = given.clip_value;
  to.beta1 = given.beta1;
  to.one_minus_beta1 = given.one_minus_beta1;
  to.beta2 = given.beta2;
  to.one_minus_beta2 = given.one_minus_beta2;
  to.eps = given.eps;
  to.inverse_bias1 = given.inverse_bias1;
  to.inverse_sqrt_bias2 = given.inverse_sqrt_bias2;
  to.minus_step = given.minus_step;
  to.weight_decay = given.weight_decay;
  to.minus_lr_decay = given.minus_lr_decay;
  to.decoupled = given.decoupled != 0;
  to.nesterov = given.nesterov != 0;
}

// A moment and its scales; format: what a block's codes are, too.
struct Moment {
  void* data = nullptr;
  float* scales = nullptr;
  Format format;
};
Moment moment_of(Memories& memories, void* data, float* scales, int32_t format, int64_t count,
                 const char* what) {
  Moment m;
  m.format = format == OTR_PLUGIN_BLOCK8            ? Format::block8
             : format == OTR_PLUGIN_POSITIVE_BLOCK8 ? Format::positive_block8
                                                    : format_of(format);
  if (data == nullptr) return m;
  m.data =
      memories.writes(data, static_cast<size_t>(kernels::plain_bytes_of(count, m.format)), what);
  if (!kernels::is_block(m.format)) return m;
  const auto bytes = static_cast<size_t>(kernels::scale_bytes_of(count, m.format));
  m.scales = reinterpret_cast<float*>(memories.writes(scales, bytes, "the update's scales"));
  return m;
}

Piece piece_of(Memories& memories, const otr_plugin_update& given) {
  Piece piece{{}, given.rule};
  kernels::Update& a = piece.update;
  const bool norms = given.rule == OTR_PLUGIN_LAMB_NORMS;
  const auto size = [&](Format format) { return size_in_bytes(given.count, format); };
  a.rule = norms ? kernels::Rule::lamb : static_cast<kernels::Rule>(given.rule);
  a.grad_format = format_of(given.grad_format);
  a.grad = memories.reads(given.grad, size(a.grad_format), "the update's gradient");
  const bool split = given.weight_format == OTR_PLUGIN_SPLIT;
  a.weight_format = split ? Format::bfloat16 : format_of(given.weight_format);
  if (given.rule != OTR_PLUGIN_MUON) {
    const auto weight = [&](void* data, const char* what) {
      return norms ? memories.reads(data, size(a.weight_format), what)
                   : memories.writes(data, size(a.weight_format), what);
    };
    a.weight = weight(given.weight, "the update's weight");
    if (split) {
      a.remainder = reinterpret_cast<uint16_t*>(weight(given.remainder, "the update's remainder"));
    }
  }
  const Moment m = moment_of(memories, given.exp_avg, given.exp_avg_scales, given.exp_avg_format,
                             given.count, "the update's exp_avg");
  const Moment v = moment_of(memories, given.exp_avg_sq, given.exp_avg_sq_scales,
                             given.exp_avg_sq_format, given.count, "the update's exp_avg_sq");
  a.exp_avg = m.data;
  a.exp_avg_format = m.format;
  a.exp_avg_scales = m.scales;
  a.exp_avg_sq = v.data;
  a.exp_avg_sq_format = v.format;
  a.exp_avg_sq_scales = v.scales;
  if (given.published != nullptr && !norms && given.rule != OTR_PLUGIN_MUON) {
    a.published_format = format_of(given.published_format);
    a.published = memories.writes(given.published, size(a.published_format), "what is published");
  }
  const auto rounding = [](int32_t r) { return static_cast<kernels::Rounding>(r); };
  a.weight_rounding = rounding(given.weight_rounding);
  a.exp_avg_rounding = rounding(given.exp_avg_rounding);
  a.exp_avg_sq_rounding = rounding(given.exp_avg_sq_rounding);
  a.count = given.count;
  set_scalars(a.scalars, given);
  a.random = {given.key, given.first_element, given.step};
  if (given.rule == OTR_PLUGIN_MUON) {
    piece.direction = reinterpret_cast<float*>(
        memories.writes(given.direction, size(Format::float32), "the direction"));
  }
  piece.norms = norms ? given.norms : nullptr;
  return piece;
}

void run(const Piece& piece, otr_plugin_update_count* total) {
  if (piece.rule == OTR_PLUGIN_MUON) {
    on_lanes::muon_direction(piece.update, piece.direction);
  } else if (piece.rule == OTR_PLUGIN_LAMB_NORMS) {
    kernels::NormSum weights, directions;
    on_lanes::lamb_norms(piece.update, weights, directions);
    piece.norms[0] = written(weights, -1);
    piece.norms[1] = written(directions, -1);
  } else {
    const kernels::UpdateCount count = on_lanes::update(piece.update);
    if (total == nullptr) return;
    total->updates += count.updates;
    total->vanished += count.vanished;
  }
}

}  // namespace

void update(Device& device, const otr_plugin_update* list, int64_t count,
            otr_plugin_update_count* host_total, uint64_t stream) {
  Memories memories(device);
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < count; ++i) {
    const otr_plugin_update given = element_of(list, i);
    if (given.rule < OTR_PLUGIN_ADAM || given.rule > OTR_PLUGIN_LAMB_NORMS) {
      fail(OTR_E_ARGUMENT, "rule " + std::to_string(given.rule) +
                               " is none of OTR_PLUGIN_ADAM to "
                               "OTR_PLUGIN_LAMB_NORMS");
    }
    pieces.push_back(piece_of(memories, given));
  }
  if (pieces.empty()) return;
  device.launch(stream, "an update", memories.touches(), [pieces = std::move(pieces), host_total] {
    for (const Piece& piece : pieces) run(piece, host_total);
  });
}

void product(Device& device, const otr_plugin_product& list, uint64_t stream) {
  const otr_plugin_product given = element_of(&list, 0);
  Memories memories(device);
  const auto bytes = [](int64_t rows, int64_t columns) {
    return size_in_bytes(rows * columns, Format::float32);
  };
  const auto reads = [&](const float* data, size_t size, const char* what) {
    return data == nullptr ? nullptr
                           : reinterpret_cast<const float*>(memories.reads(data, size, what));
  };
  kernels::Product p;
  p.left = reads(given.left, bytes(given.rows, given.inner), "the product's left");
  p.right = reads(given.right, bytes(given.inner, given.columns), "the product's right");
  p.plus = reads(given.plus, bytes(given.rows, given.columns), "the product's plus");
  p.out = reinterpret_cast<float*>(
      memories.writes(given.out, bytes(given.rows, given.columns), "the product's out"));
  p.rows = given.rows;
  p.inner = given.inner;
  p.columns = given.columns;
  p.factor = given.factor;
  p.plus_factor = given.plus_factor;
  device.launch(stream, "a product", memories.touches(), [p] { on_lanes::product(p); });
}

}  // namespace outrigger::simulated
