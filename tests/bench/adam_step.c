/* SPDX-License-Identifier: Apache-2.0
 *
 * One AdamW step of a flat tensor through the public header; scripts/bench/peers/adam_step.py is
 * the same for the peers. bench_adam_step float32|bfloat16 COUNT THREADS OPTIMIZER_FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "outrigger.h"
#include "worker.h"

enum { STRIDE = 97 };

#define TRY(call)                                                                       \
  do {                                                                                  \
    if ((call) != OTR_OK) return bench_fail("%s: %s", #call, otr_last_error_message()); \
  } while (0)

typedef struct bench {
  const char *dtype, *optimizer_file;
  int64_t count;
  int32_t threads;
  void *weights, *grads;
  otr_context* context;
  otr_shard* shard;
  otr_optimizer* optimizer;
} bench;

static int is_bf16(const bench* b) { return strcmp(b->dtype, "bfloat16") == 0; }

static void fill(const bench* b, void* out, uint32_t stream, float denominator) {
  if (is_bf16(b)) {
    fill_bf16(out, stream, (size_t)b->count, denominator);
  } else {
    fill_float32(out, stream, (size_t)b->count, denominator);
  }
}

static int setup(void* self, char* facts) {
  bench* b = self;
  char config[4096] = "";
  FILE* file = fopen(b->optimizer_file, "rb");
  if (file == NULL) return bench_fail("%s cannot be read", b->optimizer_file);
  config[fread(config, 1, sizeof config - 1, file)] = '\0';
  fclose(file);
  size_t bytes = (size_t)b->count * (is_bf16(b) ? 2 : 4);
  b->weights = bench_allocate(bytes);
  b->grads = bench_allocate(bytes);
  if (b->weights == NULL || b->grads == NULL) return bench_fail("out of memory");
  fill(b, b->weights, 1, 512);
  fill(b, b->grads, 2, 4096);

  otr_context_options options;
  otr_tensor weights, grads;
  TRY(otr_context_options_init(&options, sizeof options));
  options.workers = b->threads;
  TRY(otr_context_create(&options, &b->context));
  TRY(otr_tensor_init(b->weights, b->dtype, 1, &b->count, &weights));
  TRY(otr_tensor_init(b->grads, b->dtype, 1, &b->count, &grads));
  TRY(otr_shard_wrap(b->context, &weights, &grads, NULL, &b->shard));
  TRY(otr_optimizer_create(b->context, config, &b->optimizer));
  snprintf(facts, BENCH_FACTS, "%s", otr_build_info());
  return 0;
}

static int prepare(void* self) {
  (void)self;
  return 0;
}

static int work(void* self) {
  bench* b = self;
  otr_step_report report = OTR_STEP_REPORT_INIT;
  TRY(otr_optimizer_step(b->optimizer, &b->shard, 1, &report));
  return report.outcome == OTR_STEP_APPLIED ? 0 : bench_fail("the step was not applied");
}

/* Three steps with the gradient times 1, -1/2 and 1/4. */
static int check(void* self, const char* folder, char* facts) {
  static const float denominators[3] = {4096, -8192, 16384};
  bench* b = self;
  (void)facts;
  for (int step = 0; step < 3; step++) {
    fill(b, b->grads, 2, denominators[step]);
    if (work(b) != 0) return -1;
  }
  fill(b, b->grads, 2, 4096);
  size_t samples = 0;
  float* sampled = bench_allocate(sizeof(float) * (size_t)(b->count / STRIDE + 1));
  if (sampled == NULL) return bench_fail("out of memory");
  for (int64_t i = 0; i < b->count; i += STRIDE) {
    sampled[samples++] =
        is_bf16(b) ? float_of(((uint16_t*)b->weights)[i]) : ((float*)b->weights)[i];
  }
  int status = bench_write_samples(folder, "outrigger.weight", sampled, samples);
  free(sampled);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  static bench b;
  b.dtype = argv[1];
  b.count = atoll(argv[2]);
  b.threads = atoi(argv[3]);
  b.optimizer_file = argv[4];
  const bench_worker worker = {&b, setup, check, prepare, work, NULL};
  return bench_serve(&worker);
}
