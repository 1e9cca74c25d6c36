/* SPDX-License-Identifier: Apache-2.0
 * Saving an optimizer and going on from it. The weights are a split master, bfloat16 and 16 bits
 * beside it that are together a float32, and the moments 8-bit blocks: 6 bytes a weight where
 * float32 would take 12. One run is stopped, saved as a checkpoint and goes on in new shards;
 * another one is not stopped. Both end with the same bits.
 *   resume [FOLDER]
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

enum { COUNT = 10000, STEPS = 200 };

/* The caller's memory of a run, and its shard. */
typedef struct run {
  uint16_t weights[COUNT], remainder[COUNT];
  float grads[COUNT];
  otr_shard *shard;
} run;

/* A run's values 0 to 2, OTR_VALUE_MASTER, _EXP_AVG and _EXP_AVG_SQ, as numbers. */
typedef struct end {
  float values[3][COUNT];
  int64_t step;
} end;
static const int32_t kValues[3] = {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ};

static int begin(otr_context *context, run *r) {
  int64_t shape[1] = {COUNT};
  otr_tensor weights, grads, remainder;
  otr_shard_options options;
  memset(r, 0, sizeof *r);
  TRY(otr_tensor_init(r->weights, "bfloat16", 1, shape, &weights));
  TRY(otr_tensor_init(r->grads, "float32", 1, shape, &grads));
  TRY(otr_tensor_init(r->remainder, "bfloat16", 1, shape, &remainder));
  remainder.dtype.code = OTR_DTYPE_UINT; /* 16 bits that are no number */
  TRY(otr_shard_options_init(&options, sizeof options));
  options.remainder = &remainder;
  TRY(otr_shard_wrap(context, &weights, &grads, &options, &r->shard));
  return 0;
}

/* Pulls the weights towards a sine; the gradient is taken at the published weights. */
static int go(otr_optimizer *optimizer, run *r, int steps) {
  for (int step = 0; step < steps; step++) {
    for (int i = 0; i < COUNT; i++) {
      uint32_t bits = (uint32_t)r->weights[i] << 16;
      float published = 0;
      memcpy(&published, &bits, sizeof published);
      r->grads[i] = published - sinf(0.01F * (float)i);
    }
    TRY(otr_optimizer_step(optimizer, &r->shard, 1, NULL));
  }
  return 0;
}

static int look(run *r, end *e) {
  int64_t shape[1] = {COUNT};
  for (int v = 0; v < 3; v++) {
    otr_tensor to;
    TRY(otr_tensor_init(e->values[v], "float32", 1, shape, &to));
    TRY(otr_shard_read(r->shard, kValues[v], &to));
  }
  TRY(otr_shard_get_step(r->shard, &e->step));
  return 0;
}

int main(int argc, char **argv) {
  const char *const folder = argc > 1 ? argv[1] : ".";
  static run whole, first, second;
  static end end_of_whole, end_of_second;
  otr_context *context = NULL;
  otr_optimizer *optimizer = NULL;
  otr_save_options options;
  int64_t bytes = 0, stopped_at = 0;
  TRY(otr_context_create(NULL, &context));
  TRY(otr_optimizer_create(
      context,
      "{\"params\": {\"lr\": 0.01}, \"states\": {\"master\": {\"format\": \"split\"},"
      " \"exp_avg\": {\"format\": \"block8\"}, \"exp_avg_sq\": {\"format\": \"block8\"}}}",
      &optimizer));
  if (begin(context, &whole) || go(optimizer, &whole, STEPS)) return 1;
  if (begin(context, &first) || go(optimizer, &first, STEPS / 2)) return 1;
  TRY(otr_save_options_init(&options, sizeof options));
  options.replace = 1;
  TRY(otr_optimizer_save(optimizer, &first.shard, 1, folder, "half-way", &options));
  TRY(otr_shard_state_bytes(first.shard, &bytes));
  otr_shard_destroy(first.shard);
  if (begin(context, &second)) return 1;
  TRY(otr_optimizer_load(optimizer, &second.shard, 1, folder, "half-way", NULL));
  TRY(otr_shard_get_step(second.shard, &stopped_at));
  if (go(optimizer, &second, STEPS / 2)) return 1;
  if (look(&whole, &end_of_whole) || look(&second, &end_of_second)) return 1;

  double distance = 0;
  for (int i = 0; i < COUNT; i++) {
    distance += fabs((double)end_of_whole.values[0][i] - sin(0.01 * i)) / COUNT;
  }
  const int same =
      end_of_whole.step == end_of_second.step &&
      /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits are what is compared */
      memcmp(end_of_whole.values, end_of_second.values, sizeof end_of_whole.values) == 0;
  printf("%.2f bytes a weight, mean distance %.4f; stopped at step %lld and resumed: %s\n",
         4 + (double)bytes / COUNT, distance, (long long)stopped_at,
         same ? "the same bits" : "OTHER BITS");
  otr_shard_destroy(whole.shard);
  otr_shard_destroy(second.shard);
  otr_optimizer_destroy(optimizer);
  otr_context_destroy(context);
  return same ? 0 : 1;
}
