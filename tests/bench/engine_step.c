/* SPDX-License-Identifier: Apache-2.0
 *
 * Gather, backward and step of a model that computes next to nothing, through the public header
 * only; scripts/bench/peers/deepspeed_engine.py is the same for DeepSpeed. bench_engine_step RANK
 * WORLD JOB CONFIG_FILE MATRICES SIDE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "outrigger.h"
#include "worker.h"

enum { MAX_MATRICES = 64, STRIDE = 97 };

#define TRY(call)                                                                       \
  do {                                                                                  \
    if ((call) != OTR_OK) return bench_fail("%s: %s", #call, otr_last_error_message()); \
  } while (0)

typedef struct bench {
  int32_t rank, world, matrices;
  int64_t side;
  const char *job, *config_file;
  otr_context* context;
  otr_comm* comm;
  otr_engine* engine;
  int64_t shape[2], ids[MAX_MATRICES];
  uint16_t* grads[MAX_MATRICES];
  float total;                                        /* of the forward */
  int64_t begun, forward_end, backward_end, step_end; /* of the last work() */
  otr_step_report report;
} bench;

static int add_matrices(bench* b) {
  size_t count = (size_t)(b->side * b->side);
  uint16_t* initial = bench_allocate(2 * count);
  if (initial == NULL) return bench_fail("out of memory");
  for (int32_t m = 0; m < b->matrices; m++) {
    char name[32];
    otr_tensor tensor;
    snprintf(name, sizeof name, "matrix.%d", m);
    fill_bf16(initial, (uint32_t)m, count, 512);
    TRY(otr_tensor_init(initial, "bfloat16", 2, b->shape, &tensor));
    TRY(otr_engine_add_parameter(b->engine, name, &tensor, NULL, &b->ids[m]));
    b->grads[m] = bench_allocate(2 * count);
    if (b->grads[m] == NULL) return bench_fail("out of memory");
    fill_bf16(b->grads[m], (uint32_t)(1000 + 100 * b->rank + m), count, 4096);
  }
  free(initial);
  return 0;
}

static int setup(void* self, char* facts) {
  bench* b = self;
  char config[4096];
  otr_context_options context_options;
  otr_comm_options comm_options;
  if (bench_read_file(b->config_file, config, sizeof config) != 0) return -1;
  TRY(otr_context_options_init(&context_options, sizeof context_options));
  context_options.workers = 1; /* one core a rank */
  TRY(otr_context_create(&context_options, &b->context));
  TRY(otr_comm_options_init(&comm_options, sizeof comm_options));
  comm_options.rank = b->rank;
  comm_options.world_size = b->world;
  comm_options.job = b->job;
  TRY(otr_comm_create_shm(b->context, &comm_options, &b->comm));
  TRY(otr_engine_create(b->comm, config, &b->engine));
  if (add_matrices(b) != 0) return -1;
  TRY(otr_engine_commit(b->engine));
  snprintf(facts, BENCH_FACTS, "%s", otr_build_info());
  return 0;
}

static int prepare(void* self) {
  TRY(otr_comm_barrier(((bench*)self)->comm));
  return 0;
}

/* Every module makes its weight readable and adds the sum of its first column, one element a 4 KiB
 * page. */
static int forward(bench* b) {
  b->total = 0;
  for (int32_t m = 0; m < b->matrices; m++) {
    otr_tensor weight;
    TRY(otr_engine_acquire(b->engine, &b->ids[m], 1, NULL, &weight));
    const uint16_t* values = weight.data;
    float sum = 0;
    for (int64_t r = 0; r < b->side; r++) sum += float_of(values[r * b->side]);
    b->total += sum;
    TRY(otr_engine_release(b->engine, &b->ids[m], 1, NULL));
  }
  return 0;
}

/* Every module, last first, makes its weight readable and copies its ready gradient to where it is
 * wanted. */
static int backward(bench* b) {
  float one = 1;
  otr_tensor seed, weight, slot;
  otr_pass* pass;
  TRY(otr_tensor_init(&one, "float32", 0, NULL, &seed));
  TRY(otr_pass_begin(b->engine, &seed, 1, NULL, &pass));
  for (int32_t m = b->matrices; m-- > 0;) {
    TRY(otr_engine_acquire(b->engine, &b->ids[m], 1, NULL, &weight));
    TRY(otr_pass_get_slot(pass, b->ids[m], &slot));
    memcpy(slot.data, b->grads[m], (size_t)(2 * b->side * b->side));
    TRY(otr_pass_add_grad(pass, b->ids[m], &slot, NULL));
    TRY(otr_engine_release(b->engine, &b->ids[m], 1, NULL));
  }
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  return 0;
}

static int work(void* self) {
  bench* b = self;
  b->begun = bench_now();
  if (forward(b) != 0) return -1;
  b->forward_end = bench_now();
  if (backward(b) != 0) return -1;
  b->backward_end = bench_now();
  b->report = (otr_step_report)OTR_STEP_REPORT_INIT;
  TRY(otr_engine_step(b->engine, &b->report));
  b->step_end = bench_now();
  if (b->report.outcome != OTR_STEP_APPLIED) return bench_fail("the step was not applied");
  return 0;
}

static int facts_of_work(void* self, char* facts) {
  bench* b = self;
  snprintf(facts, BENCH_FACTS,
           "{\"total\": %.9g, \"forward_s\": %.9g, \"backward_s\": %.9g, \"step_s\": %.9g}",
           (double)b->total, (double)(b->forward_end - b->begun) * 1e-9,
           (double)(b->backward_end - b->forward_end) * 1e-9,
           (double)(b->step_end - b->backward_end) * 1e-9);
  return 0;
}

static int write_weights(bench* b, const char* folder) {
  int64_t count = b->side * b->side, samples = 0;
  float* sampled = bench_allocate(sizeof(float) * (size_t)(b->matrices * (count / STRIDE + 1)));
  uint16_t* values = bench_allocate(2 * (size_t)count);
  if (sampled == NULL || values == NULL) return bench_fail("out of memory");
  for (int32_t m = 0; m < b->matrices; m++) {
    otr_tensor whole;
    TRY(otr_tensor_init(values, "bfloat16", 2, b->shape, &whole));
    TRY(otr_engine_parameter_read(b->engine, b->ids[m], OTR_VALUE_PUBLISHED, &whole));
    for (int64_t i = 0; i < count; i += STRIDE) sampled[samples++] = float_of(values[i]);
  }
  char name[64];
  snprintf(name, sizeof name, "outrigger.weights.%d", b->rank);
  int status = bench_write_samples(folder, name, sampled, (size_t)samples);
  free(sampled);
  free(values);
  return status;
}

/* Three steps with the gradients times 1, -1/2 and 1: clipping undoes the half, a missing clip
 * shows. */
static int check(void* self, const char* folder, char* facts) {
  static const float factors[3] = {1.0F, -0.5F, 1.0F};
  bench* b = self;
  size_t count = (size_t)(b->side * b->side);
  double norms[3];
  for (int step = 0; step < 3; step++) {
    for (int32_t m = 0; m < b->matrices; m++) scale_bf16(b->grads[m], count, factors[step]);
    if (work(b) != 0) return -1;
    norms[step] = b->report.grad_norm;
    for (int32_t m = 0; m < b->matrices; m++) scale_bf16(b->grads[m], count, 1 / factors[step]);
  }
  snprintf(facts, BENCH_FACTS, "{\"norms\": [%.9g, %.9g, %.9g]}", norms[0], norms[1], norms[2]);
  return write_weights(b, folder);
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  static bench b;
  b.rank = atoi(argv[1]);
  b.world = atoi(argv[2]);
  b.job = argv[3];
  b.config_file = argv[4];
  b.matrices = atoi(argv[5]);
  b.side = atoi(argv[6]);
  b.shape[0] = b.shape[1] = b.side;
  if (b.matrices < 1 || b.matrices > MAX_MATRICES) return 2;
  const bench_worker worker = {&b, setup, NULL, check, prepare, work, facts_of_work};
  return bench_serve(&worker);
}
