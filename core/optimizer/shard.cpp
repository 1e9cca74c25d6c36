// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/shard.h"

#include <vector>

#include "core/base/error.h"
#include "kernels/composed.h"

namespace outrigger::optimizer {
namespace {

using kernels::Format;

tensor::View flat_view(const otr_tensor& t, const char* what) {
  tensor::View view = tensor::check(t, what);
  if (view.shape.size() != 1 || !view.contiguous) {
    fail(OTR_E_SHAPE, "{} has shape {}{}; a shard takes contiguous 1-D tensors", what,
         tensor::text_of(view.shape), view.contiguous ? "" : " with gaps");
  }
  if (view.format == Format::float64) {
    fail(OTR_E_DTYPE, "{} is {}; a shard takes float32, bfloat16 or float16", what,
         tensor::name_of(view.format));
  }
  return view;
}

// Sixteen bits that are no number: checked here, as tensors of floats only are checked elsewhere.
uint16_t* remainder_of(const otr_tensor& given, const Shard& shard) {
  if (shard.weights.format != Format::bfloat16) {
    fail(OTR_E_DTYPE,
         "remainder is given beside {} weights; it is the other half of a split master, whose "
         "weights are bfloat16",
         tensor::name_of(shard.weights.format));
  }
  const bool integer = given.dtype.code == OTR_DTYPE_INT || given.dtype.code == OTR_DTYPE_UINT;
  if (!integer || given.dtype.bits != 16 || given.dtype.lanes != 1) {
    fail(OTR_E_DTYPE, "remainder has dtype code {}, {} bits; it is uint16 or int16",
         int{given.dtype.code}, int{given.dtype.bits});
  }
  otr_tensor as_bits = given;
  as_bits.dtype = tensor::dtype_of(Format::bfloat16);
  const tensor::View view = flat_view(as_bits, "remainder");
  if (view.count != shard.weights.count) {
    fail(OTR_E_SHAPE, "remainder has {} elements, weights {}: they must be equal", view.count,
         shard.weights.count);
  }
  return reinterpret_cast<uint16_t*>(view.data);
}

tensor::View checked(const Shard& shard, const otr_tensor& t, const char* what) {
  tensor::View view = tensor::check(t, what);
  if (view.shape.size() != 1 || view.count != shard.weights.count) {
    fail(OTR_E_SHAPE, "{} has shape {}; shard \"{}\" has [{}]", what, tensor::text_of(view.shape),
         shard.name, shard.weights.count);
  }
  return view;
}

}  // namespace

StoredValue stored_value(const Shard& shard, int32_t value) {
  if (value == OTR_VALUE_MASTER && shard.is_split) {
    return {reinterpret_cast<std::byte*>(shard.remainder), Format::split, shard.weights.data};
  }
  if (value == OTR_VALUE_MASTER) return {shard.weights.data, shard.weights.format};
  if (value != OTR_VALUE_EXP_AVG && value != OTR_VALUE_EXP_AVG_SQ) {
    fail(OTR_E_ARGUMENT,
         "value {} is none of OTR_VALUE_MASTER ({}), OTR_VALUE_EXP_AVG ({}) and "
         "OTR_VALUE_EXP_AVG_SQ ({})",
         value, static_cast<int>(OTR_VALUE_MASTER), static_cast<int>(OTR_VALUE_EXP_AVG),
         static_cast<int>(OTR_VALUE_EXP_AVG_SQ));
  }
  if (!shard.has_states) {
    fail(OTR_E_NOT_FOUND,
         "shard \"{}\" has no states before its first step; otr_optimizer_prepare makes them",
         shard.name);
  }
  if (value == OTR_VALUE_EXP_AVG ? !shard.keeps_exp_avg : !shard.keeps_exp_avg_sq) {
    fail(OTR_E_NOT_FOUND, "shard \"{}\" has no {}: its rule keeps none", shard.name,
         value == OTR_VALUE_EXP_AVG ? "exp_avg" : "exp_avg_sq");
  }
  const bool first = value == OTR_VALUE_EXP_AVG;
  const memory::Block& moment = first ? shard.exp_avg : shard.exp_avg_sq;
  const Format format = first ? shard.exp_avg_format : shard.exp_avg_sq_format;
  return {moment.data(), format, reinterpret_cast<std::byte*>(shard.scales_of(moment, format))};
}

void publish(const Shard& shard) {
  if (!shard.published) return;
  kernels::convert(shard.published->data, shard.published->format, shard.weights.data,
                   shard.weights.format, shard.weights.count);
}

otr_tensor state_view(const Shard& shard, int32_t value) {
  if (value == OTR_VALUE_MASTER) {
    fail(OTR_E_ARGUMENT, "value {} is OTR_VALUE_MASTER: the weights are the caller's memory",
         value);
  }
  const StoredValue s = stored_value(shard, value);
  if (kernels::is_block(s.format)) {
    fail(OTR_E_UNSUPPORTED,
         "the states of shard \"{}\" are 8-bit blocks, which no dtype describes; "
         "otr_shard_read copies them out as numbers",
         shard.name);
  }
  return tensor::make(s.data, s.format, shard.weights.shape);
}

void read_shard(const Shard& shard, int32_t value, const otr_tensor& out) {
  const StoredValue s = stored_value(shard, value);
  const tensor::View view = checked(shard, out, "destination");
  if (!kernels::is_composed(s.format)) return tensor::write(view, s.data, s.format);
  std::vector<float> values(static_cast<size_t>(view.count));
  kernels::read_composed(values.data(), s.data, s.beside, s.format, view.count);
  tensor::write(view, values.data(), Format::float32);
}

void write_shard(Shard& shard, int32_t value, const otr_tensor& source) {
  const StoredValue s = stored_value(shard, value);
  const tensor::View view = checked(shard, source, "source");
  if (!kernels::is_composed(s.format)) {
    tensor::read(s.data, s.format, view);
    if (value == OTR_VALUE_MASTER) publish(shard);
    return;
  }
  std::vector<float> values(static_cast<size_t>(view.count));
  tensor::read(values.data(), Format::float32, view);
  kernels::write_composed(s.data, s.beside, s.format, values.data(), view.count);
}

void set_grads(Shard& shard, const otr_tensor* grads) {
  if (grads == nullptr) {
    shard.grads.reset();
    return;
  }
  tensor::View view = flat_view(*grads, "grads");
  if (view.count != shard.weights.count) {
    fail(OTR_E_SHAPE, "grads has {} elements, weights {}: they must be equal", view.count,
         shard.weights.count);
  }
  shard.grads = std::move(view);
}

std::shared_ptr<Shard> wrap_shard(std::shared_ptr<Context> context, const otr_tensor& weights,
                                  const otr_tensor* grads, const otr_shard_options& options) {
  auto shard = std::make_shared<Shard>();
  shard->context = std::move(context);
  shard->weights = flat_view(weights, "weights");
  set_grads(*shard, grads);
  if (options.published != nullptr) {
    shard->published = flat_view(*options.published, "published");
    if (shard->published->format == Format::float32 || shard->weights.format != Format::float32) {
      fail(OTR_E_DTYPE,
           "published is {} beside {} weights; it is the bfloat16 or float16 copy of float32 "
           "weights",
           tensor::name_of(shard->published->format), tensor::name_of(shard->weights.format));
    }
    if (shard->published->count != shard->weights.count) {
      fail(OTR_E_SHAPE, "published has {} elements, weights {}: they must be equal",
           shard->published->count, shard->weights.count);
    }
  }
  if (options.remainder != nullptr) {
    shard->remainder = remainder_of(*options.remainder, *shard);
    shard->is_split = true;
  }
  if (options.first_element < 0 || options.first_element % kernels::kLeaf != 0) {
    fail(OTR_E_ARGUMENT, "first_element = {}; legal is a multiple of {} from 0",
         options.first_element, kernels::kLeaf);
  }
  if (options.rows < 0 || (options.rows > 0 && shard->weights.count % options.rows != 0)) {
    fail(OTR_E_ARGUMENT,
         "rows = {} is not legal for {} elements; it divides them, or is 0 where the shard is no "
         "matrix",
         options.rows, shard->weights.count);
  }
  shard->rows = shard->weights.count > 0 ? options.rows : 0;
  for (const tensor::View* view : {&shard->weights, shard->grads ? &*shard->grads : nullptr,
                                   shard->published ? &*shard->published : nullptr}) {
    if (view == nullptr) continue;
    const auto bytes = static_cast<size_t>(kernels::bytes_of(view->count, view->format));
    shard->ledger.add_neighbour({view->data, bytes});
  }
  shard->name = options.name == nullptr ? "shard" : options.name;
  shard->first_element = options.first_element;
  return shard;
}

}  // namespace outrigger::optimizer
