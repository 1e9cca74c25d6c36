/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward and step of an engine whose states, and perhaps parameters, are on the host, beside the
 * simulated device, which computes nothing and takes exactly the time that it is given: a backward
 * of so many seconds, copies at a set speed.
 * bench_offload_step RANK WORLD JOB CONFIG_FILE MATRICES SIDE BACKWARD_SECONDS BYTES_PER_SECOND
 *   [FORWARD_SECONDS waits|begins]
 * With BYTES_PER_SECOND 0 and BACKWARD_SECONDS 0 it tells what the host's update takes by itself.
 * With FORWARD_SECONDS it makes some steps in a row, and waits for each, or begins it and goes on
 * with the next forward.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "numbers.h"
#include "outrigger.h"
#include "worker.h"

enum { MAX_MATRICES = 64, DEVICE = OTR_DEVICE_EXTENSION, COUNTS = 5, STEPS_IN_A_ROW = 4 };
static const char* const names[COUNTS] = {"allocations", "synchronizations", "unpinned_bytes",
                                          "bytes_to_device", "bytes_to_host"};

#define TRY(call)                                                                       \
  do {                                                                                  \
    if ((call) != OTR_OK) return bench_fail("%s: %s", #call, otr_last_error_message()); \
  } while (0)

typedef struct bench {
  int32_t rank, world, matrices;
  int prefetches; /* parameters come from the host */
  int64_t side;
  double backward_seconds, bytes_per_second, forward_seconds;
  int begins; /* steps */
  const char *job, *config_file;
  otr_context* context;
  otr_comm* comm;
  otr_engine* engine;
  int64_t shape[2], ids[MAX_MATRICES];
  int64_t step_begin, step_end; /* of the last work() */
  double before[COUNTS];
} bench;

static int set(bench* b, const char* name, double value) {
  TRY(otr_device_set_value(b->context, DEVICE, b->rank, name, value));
  return 0;
}

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
  b->prefetches = strstr(config, "offload_param") != NULL;
  TRY(otr_context_options_init(&context_options, sizeof context_options));
  context_options.workers = b->world == 1 ? 2 : 1; /* two cores in all */
  TRY(otr_context_create(&context_options, &b->context));
  TRY(otr_context_load_plugin(b->context, "simulated"));
  TRY(otr_comm_options_init(&comm_options, sizeof comm_options));
  comm_options.rank = b->rank;
  comm_options.world_size = b->world;
  comm_options.job = b->job;
  TRY(otr_comm_create_shm(b->context, &comm_options, &b->comm));
  TRY(otr_engine_create(b->comm, config, &b->engine));
  TRY(otr_engine_set_device(b->engine, DEVICE, b->rank));
  if (add_matrices(b) != 0) return -1;
  TRY(otr_engine_commit(b->engine));
  if (set(b, "skip_kernels", 1) != 0) return -1;
  if (set(b, "copy_bytes_per_second", b->bytes_per_second) != 0) return -1;
  snprintf(facts, BENCH_FACTS, "%s", otr_build_info());
  return 0;
}

static int prepare(void* self) {
  bench* b = self;
  for (int c = 0; c < COUNTS; c++) {
    TRY(otr_device_get_value(b->context, DEVICE, b->rank, names[c], &b->before[c]));
  }
  TRY(otr_comm_barrier(b->comm));
  return 0;
}

/* Without a time of its own the forward's work is part of the backward's. */
static int forward(bench* b) {
  otr_tensor weight;
  for (int32_t m = 0; m < b->matrices; m++) {
    TRY(otr_engine_acquire(b->engine, &b->ids[m], 1, NULL, &weight));
    if (b->prefetches && m + 1 < b->matrices)
      TRY(otr_engine_prefetch(b->engine, &b->ids[m + 1], 1, NULL));
    if (b->forward_seconds > 0 && set(b, "delay", b->forward_seconds / b->matrices) != 0) return -1;
    TRY(otr_engine_release(b->engine, &b->ids[m], 1, NULL));
  }
  return 0;
}

/* A slot's gradient is what lies there. */
static int backward(bench* b) {
  otr_tensor weight, slot;
  otr_pass* pass;
  TRY(otr_pass_begin(b->engine, NULL, 0, NULL, &pass));
  for (int32_t m = b->matrices; m-- > 0;) {
    TRY(otr_engine_acquire(b->engine, &b->ids[m], 1, NULL, &weight));
    if (b->prefetches && m > 0) TRY(otr_engine_prefetch(b->engine, &b->ids[m - 1], 1, NULL));
    TRY(otr_pass_get_slot(pass, b->ids[m], &slot));
    if (set(b, "delay", b->backward_seconds / b->matrices) != 0) return -1;
    TRY(otr_pass_add_grad(pass, b->ids[m], &slot, NULL));
    TRY(otr_engine_release(b->engine, &b->ids[m], 1, NULL));
  }
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  return 0;
}

static int report(bench* b) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  TRY(otr_engine_report(b->engine, -1, &report));
  return report.outcome == OTR_STEP_APPLIED ? 0 : bench_fail("the step was not applied");
}

static int steps_in_a_row(bench* b) {
  for (int i = 0; i < STEPS_IN_A_ROW; i++) {
    if (forward(b) != 0) return -1;
    if (b->begins && i > 0 && report(b) != 0) return -1;
    if (backward(b) != 0) return -1;
    TRY(b->begins ? otr_engine_step_begin(b->engine) : otr_engine_step(b->engine, NULL));
  }
  return b->begins ? report(b) : 0;
}

static int work(void* self) {
  bench* b = self;
  otr_step_report report = OTR_STEP_REPORT_INIT;
  if (b->forward_seconds > 0) return steps_in_a_row(b);
  if (forward(b) != 0 || backward(b) != 0) return -1;
  if (b->bytes_per_second == 0) { /* the gradients have come by then */
    const struct timespec pause = {0, 50000000};
    nanosleep(&pause, NULL);
  }
  b->step_begin = bench_now();
  TRY(otr_engine_step(b->engine, &report));
  b->step_end = bench_now();
  if (report.outcome != OTR_STEP_APPLIED) return bench_fail("the step was not applied");
  return 0;
}

static int facts_of_work(void* self, char* facts) {
  bench* b = self;
  int length = snprintf(facts, BENCH_FACTS, "{\"step_s\": %.9g",
                        (double)(b->step_end - b->step_begin) * 1e-9);
  for (int c = 0; c < COUNTS; c++) {
    double value = 0;
    TRY(otr_device_get_value(b->context, DEVICE, b->rank, names[c], &value));
    length += snprintf(facts + length, BENCH_FACTS - (size_t)length, ", \"%s\": %.17g", names[c],
                       value - b->before[c]);
  }
  snprintf(facts + length, BENCH_FACTS - (size_t)length, "}");
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 9 && argc != 11) return 2;
  static bench b;
  b.rank = atoi(argv[1]);
  b.world = atoi(argv[2]);
  b.job = argv[3];
  b.config_file = argv[4];
  b.matrices = atoi(argv[5]);
  b.side = atoi(argv[6]);
  b.backward_seconds = atof(argv[7]);
  b.bytes_per_second = atof(argv[8]);
  b.forward_seconds = argc == 11 ? atof(argv[9]) : 0;
  b.begins = argc == 11 && strcmp(argv[10], "begins") == 0;
  b.shape[0] = b.shape[1] = b.side;
  if (b.matrices < 1 || b.matrices > MAX_MATRICES) return 2;
  const bench_worker worker = {&b, setup, NULL, NULL, prepare, work, facts_of_work};
  return bench_serve(&worker);
}
