// SPDX-License-Identifier: Apache-2.0
#include "c_api/src/handles.h"
#include "core/tensor/tensor.h"
#include "kernels/kernels.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

namespace {

otr_context_options context_defaults() {
  otr_context_options o{};
  o.struct_size = sizeof o;
  o.log_level = OTR_LOG_WARNING;
  return o;
}

}  // namespace

int32_t otr_tensor_init(void* data, const char* dtype, int32_t ndim, int64_t* shape,
                        otr_tensor* out_tensor) noexcept {
  return guard([&] {
    required(out_tensor, "out_tensor") = {};
    required(dtype, "dtype");
    if (ndim < 0 || ndim > 64) fail(OTR_E_ARGUMENT, "ndim = {}; legal is 0 to 64", ndim);
    if (ndim > 0) required(shape, "shape");
    const otr_dtype known = tensor::dtype_named(dtype);
    for (int32_t d = 0; d < ndim; ++d) {
      if (shape[d] < 0) fail(OTR_E_ARGUMENT, "shape[{}] = {}; legal is 0 or more", d, shape[d]);
    }
    *out_tensor = tensor::make(data, known, {shape, static_cast<size_t>(ndim)});
  });
}

int32_t otr_call_info_init(otr_call_info* info, size_t size) noexcept {
  return init_struct(info, size, otr_call_info{}, "info");
}

int32_t otr_context_options_init(otr_context_options* options, size_t size) noexcept {
  return init_struct(options, size, context_defaults(), "options");
}

int32_t otr_context_create(const otr_context_options* options, otr_context** out_context) noexcept {
  return guard([&] {
    required(out_context, "out_context") = nullptr;
    const auto read = read_struct(options, context_defaults(), "options");
    if (const char* error = kernels::simd_error()) fail(OTR_E_UNSUPPORTED, "{}", error);
    *out_context = new otr_context(std::make_shared<Context>(read));
  });
}

void otr_context_destroy(otr_context* context) noexcept { destroy(context); }
