/* SPDX-License-Identifier: Apache-2.0
 *
 * One optimizer step over flat tensors through the public header;
 * scripts/bench/peers/optimizer_step.py is the same for the peers.   bench_optimizer_step WEIGHTS
 * GRADS COUNT SHARDS THREADS OPTIMIZER_FILE [ROWS] WEIGHTS: float32, bfloat16, split, or published
 * (float32 and a bfloat16 copy). GRADS: a dtype. COUNT elements in all, in SHARDS equal shards.
 * ROWS: each of them is a matrix of so many rows.
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
  const char *form, *weight_dtype, *grad_dtype, *optimizer_file;
  int64_t count, shards, rows;
  int32_t threads;
  char *weights, *grads, *beside; /* beside: remainders, or the published copy, or NULL */
  otr_context* context;
  otr_shard** list;
  otr_optimizer* optimizer;
} bench;

static int is_bf16(const char* dtype) { return strcmp(dtype, "bfloat16") == 0; }
static size_t size_of(const char* dtype) { return is_bf16(dtype) ? 2 : 4; }

static void fill(void* out, const char* dtype, uint32_t stream, size_t count, float denominator) {
  if (is_bf16(dtype)) {
    fill_bf16(out, stream, count, denominator);
  } else {
    fill_float32(out, stream, count, denominator);
  }
}

static int wrap(bench* b, int64_t index, otr_shard** shard) {
  int64_t each = b->count / b->shards, first = index * each;
  otr_tensor weights, grads, beside;
  otr_shard_options options;
  TRY(otr_tensor_init(b->weights + (size_t)first * size_of(b->weight_dtype), b->weight_dtype, 1,
                      &each, &weights));
  TRY(otr_tensor_init(b->grads + (size_t)first * size_of(b->grad_dtype), b->grad_dtype, 1, &each,
                      &grads));
  TRY(otr_shard_options_init(&options, sizeof options));
  options.rows = b->rows;
  if (b->beside != NULL) {
    TRY(otr_tensor_init(b->beside + (size_t)first * 2, "bfloat16", 1, &each, &beside));
  }
  if (strcmp(b->form, "published") == 0) options.published = &beside;
  if (strcmp(b->form, "split") == 0) {
    beside.dtype.code = OTR_DTYPE_UINT;
    options.remainder = &beside;
  }
  TRY(otr_shard_wrap(b->context, &weights, &grads, &options, shard));
  return 0;
}

static int setup(void* self, char* facts) {
  bench* b = self;
  char config[4096] = "";
  FILE* file = fopen(b->optimizer_file, "rb");
  if (file == NULL) return bench_fail("%s cannot be read", b->optimizer_file);
  config[fread(config, 1, sizeof config - 1, file)] = '\0';
  fclose(file);
  const size_t count = (size_t)b->count;
  b->weights = bench_allocate(count * size_of(b->weight_dtype));
  b->grads = bench_allocate(count * size_of(b->grad_dtype));
  const int needs = strcmp(b->form, "published") == 0 || strcmp(b->form, "split") == 0;
  b->beside = needs ? bench_allocate(count * 2) : NULL;
  b->list = calloc((size_t)b->shards, sizeof *b->list);
  if (b->weights == NULL || b->grads == NULL || (needs && b->beside == NULL) || b->list == NULL) {
    return bench_fail("out of memory");
  }
  fill(b->weights, b->weight_dtype, 1, count, 512);
  fill(b->grads, b->grad_dtype, 2, count, 4096);

  otr_context_options options;
  TRY(otr_context_options_init(&options, sizeof options));
  options.workers = b->threads;
  TRY(otr_context_create(&options, &b->context));
  for (int64_t i = 0; i < b->shards; i++) {
    if (wrap(b, i, &b->list[i]) != 0) return -1;
  }
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
  TRY(otr_optimizer_step(b->optimizer, b->list, b->shards, &report));
  return report.outcome == OTR_STEP_APPLIED ? 0 : bench_fail("the step was not applied");
}

/* Three steps with the gradient times 1, -1/2 and 1/4; then the weights, as published if they are.
 */
static int check(void* self, const char* folder, char* facts) {
  static const float denominators[3] = {4096, -8192, 16384};
  bench* b = self;
  int64_t bytes = 0, all = 0;
  const size_t count = (size_t)b->count;
  for (int step = 0; step < 3; step++) {
    fill(b->grads, b->grad_dtype, 2, count, denominators[step]);
    if (work(b) != 0) return -1;
  }
  fill(b->grads, b->grad_dtype, 2, count, 4096);
  for (int64_t i = 0; i < b->shards; i++) {
    TRY(otr_shard_state_bytes(b->list[i], &bytes));
    all += bytes;
  }
  snprintf(facts, BENCH_FACTS, "{\"state_bytes_per_parameter\": %.4f}",
           (double)all / (double)count);
  size_t samples = 0;
  float* sampled = bench_allocate(sizeof(float) * (count / STRIDE + 1));
  if (sampled == NULL) return bench_fail("out of memory");
  const int published = strcmp(b->form, "published") == 0;
  const char* shown = published ? b->beside : b->weights;
  for (size_t i = 0; i < count; i += STRIDE) {
    sampled[samples++] = published || is_bf16(b->weight_dtype)
                             ? float_of(((const uint16_t*)shown)[i])
                             : ((const float*)shown)[i];
  }
  int status = bench_write_samples(folder, "outrigger.weight", sampled, samples);
  free(sampled);
  return status;
}

static int shape(void* self, const char* arguments, char* facts) {
  bench* b = self;
  otr_optimizer_destroy(b->optimizer);
  for (int64_t i = 0; i < b->shards; i++) otr_shard_destroy(b->list[i]);
  otr_context_destroy(b->context);
  free((void*)b->list);
  free(b->weights);
  free(b->grads);
  free(b->beside);
  char* rest = NULL;
  b->count = strtoll(arguments, &rest, 10);
  b->shards = strtoll(rest, NULL, 10);
  if (b->shards < 1 || b->count < b->shards) return bench_fail("shape COUNT SHARDS");
  return setup(b, facts);
}

int main(int argc, char** argv) {
  if (argc != 7 && argc != 8) return 2;
  static bench b;
  b.form = argv[1];
  b.weight_dtype =
      strcmp(b.form, "bfloat16") == 0 || strcmp(b.form, "split") == 0 ? "bfloat16" : "float32";
  b.grad_dtype = argv[2];
  b.count = atoll(argv[3]);
  b.shards = atoll(argv[4]);
  b.threads = atoi(argv[5]);
  b.optimizer_file = argv[6];
  b.rows = argc == 8 ? atoll(argv[7]) : 0;
  const bench_worker worker = {&b, setup, shape, check, prepare, work, NULL};
  return bench_serve(&worker);
}
