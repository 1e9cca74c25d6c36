// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pass.h"

#include <vector>

#include "c_api/src/call_info.h"
#include "c_api/src/handles.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

int32_t otr_pass_begin(otr_engine* engine, const otr_tensor* output_grads, int64_t count,
                       const otr_call_info* info, otr_pass** out_pass) noexcept {
  return guard([&] {
    required(out_pass, "out_pass") = nullptr;
    const auto& e = get(engine, "engine");
    required_count(count, output_grads, "output_grads");
    const otr_call_info read = read_call_info(info, OTR_PASS_KEEP_DTYPE, e->on_host());
    *out_pass = new otr_pass(e->begin_pass(output_grads, count, tag_of(read),
                                           (read.flags & OTR_PASS_KEEP_DTYPE) != 0, read.stream));
  });
}

int32_t otr_pass_get_output_grad(otr_pass* pass, int64_t index, otr_tensor* out_tensor) noexcept {
  return guard([&] {
    required(out_tensor, "out_tensor") = {};
    *out_tensor = get(pass, "pass")->output_grad(index);
  });
}

int32_t otr_pass_get_scale(const otr_pass* pass, double* out_scale) noexcept {
  return guard([&] {
    required(out_scale, "out_scale") = 0;
    *out_scale = get(pass, "pass")->scale();
  });
}

int32_t otr_pass_get_tag(const otr_pass* pass, otr_call_info* info) noexcept {
  return guard([&] {
    const auto& p = get(pass, "pass");
    required(info, "info");
    require_size<otr_call_info>(info->struct_size, "info");
    info->loss_scale = p->tag().loss_scale;
    info->accumulation = p->tag().accumulation;
    info->ranks = p->tag().ranks;
  });
}

int32_t otr_pass_unscale(const otr_pass* pass, const otr_tensor* grad,
                         const otr_tensor* out) noexcept {
  return guard([&] { get(pass, "pass")->unscale(required(grad, "grad"), required(out, "out")); });
}

int32_t otr_pass_get_seed_overflow(const otr_pass* pass, int64_t* out_index) noexcept {
  return guard([&] {
    required(out_index, "out_index") = 0;
    *out_index = get(pass, "pass")->seed_overflow();
  });
}

int32_t otr_pass_get_slot(otr_pass* pass, int64_t id, otr_tensor* out_slot) noexcept {
  return guard([&] {
    required(out_slot, "out_slot") = {};
    *out_slot = get(pass, "pass")->slot(id);
  });
}

int32_t otr_pass_add_grad(otr_pass* pass, int64_t id, const otr_tensor* grad,
                          const otr_call_info* info) noexcept {
  return guard([&] {
    const auto& p = get(pass, "pass");
    const otr_call_info read = read_call_info(info, 0, p->on_host());
    p->add_grad(id, required(grad, "grad"), tag_of(read), read.stream);
  });
}

int32_t otr_pass_end(otr_pass* pass) noexcept {
  return guard([&] { get(pass, "pass")->end(); });
}

int32_t otr_pass_abandon(otr_pass* pass) noexcept {
  return guard([&] { get(pass, "pass")->abandon(); });
}

void otr_pass_destroy(otr_pass* pass) noexcept { destroy(pass); }

// The host's code runs outside guard(): under its own floating-point settings, and free to call in.
int32_t otr_engine_backward(otr_engine* engine, const otr_tensor* output_grads, int64_t count,
                            const otr_call_info* info, otr_vjp_callback vjp,
                            void* user_data) noexcept {
  otr_pass* pass = nullptr;
  std::vector<otr_tensor> scaled;
  int32_t status = guard([&] {
    static_cast<void>(get(engine, "engine"));
    if (vjp == nullptr) fail(OTR_E_ARGUMENT, "vjp is NULL");
    scaled.resize(static_cast<size_t>(required_count(count, output_grads, "output_grads")));
  });
  if (status == OTR_OK) status = otr_pass_begin(engine, output_grads, count, info, &pass);
  for (size_t i = 0; i < scaled.size() && status == OTR_OK; ++i) {
    status = otr_pass_get_output_grad(pass, static_cast<int64_t>(i), &scaled[i]);
  }
  if (status == OTR_OK) {
    const int32_t answer = vjp(pass, scaled.data(), count, user_data);
    status = answer == 0 ? otr_pass_end(pass) : guard([&] {
      fail(OTR_E_HOST, "the vjp callback returned {}, not 0: the pass is abandoned", answer);
    });
  }
  otr_pass_destroy(pass);  // abandons what did not end, and leaves the error text alone
  return status;
}
