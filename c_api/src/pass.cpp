// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pass.h"

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
    read_call_info(info, 0);
    *out_pass = new otr_pass(e->begin_pass(output_grads, count));
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
    read_call_info(info, 0);
    p->add_grad(id, required(grad, "grad"));
  });
}

int32_t otr_pass_end(otr_pass* pass) noexcept {
  return guard([&] { get(pass, "pass")->end(); });
}

int32_t otr_pass_abandon(otr_pass* pass) noexcept {
  return guard([&] { get(pass, "pass")->abandon(); });
}

void otr_pass_destroy(otr_pass* pass) noexcept { destroy(pass); }
