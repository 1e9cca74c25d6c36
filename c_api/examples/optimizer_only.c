/* SPDX-License-Identifier: Apache-2.0
 * The optimizer alone, on memory of one's own: bfloat16 weights and moments with stochastic
 * rounding, so a weight costs 6 bytes where float32 would cost 12. No engine, no ranks. It pulls
 * weights towards a target.
 */
#include <math.h>
#include <outrigger.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TRY(call)                                                 \
  if ((call) != OTR_OK) {                                         \
    fprintf(stderr, "%s: %s\n", #call, otr_last_error_message()); \
    return 1;                                                     \
  }

enum { COUNT = 10000, STEPS = 400 };

/* bfloat16 is the upper half of a float32. */
static float widen(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static double target(int i) { return sin(0.01 * i); }

int main(void) {
  static uint16_t weights[COUNT]; /* bfloat16, all 0 */
  static float grads[COUNT];
  int64_t shape[1] = {COUNT}, state_bytes = 0;
  const char *config =
      "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01},"
      " \"states\": {\"exp_avg\": {\"format\": \"bfloat16\"}, \"exp_avg_sq\": {\"format\": "
      "\"bfloat16\"}}}";
  otr_context *context = NULL;
  otr_optimizer *optimizer = NULL;
  otr_shard *shard = NULL;
  otr_tensor w, g;
  otr_step_report report = OTR_STEP_REPORT_INIT;

  TRY(otr_context_create(NULL, &context));
  TRY(otr_optimizer_create(context, config, &optimizer));
  TRY(otr_tensor_init(weights, "bfloat16", 1, shape, &w));
  TRY(otr_tensor_init(grads, "float32", 1, shape, &g));
  TRY(otr_shard_wrap(context, &w, &g, NULL, &shard));
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < COUNT; i++) grads[i] = widen(weights[i]) - (float)target(i);
    TRY(otr_optimizer_set_value(optimizer, "lr", 0.01 * (1 - (double)step / STEPS)));
    TRY(otr_optimizer_step(optimizer, &shard, 1, &report));
  }
  TRY(otr_shard_state_bytes(shard, &state_bytes));

  double distance = 0;
  for (int i = 0; i < COUNT; i++) distance += fabs((double)widen(weights[i]) - target(i)) / COUNT;
  printf("mean distance %.4f after %lld steps; %.1f bytes of states per weight\n", distance,
         (long long)report.applied_steps, (double)state_bytes / COUNT);
  otr_shard_destroy(shard);
  otr_optimizer_destroy(optimizer);
  otr_context_destroy(context);
  return 0;
}
