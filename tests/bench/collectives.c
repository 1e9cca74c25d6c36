/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective on private memory through the public header, or, to set it beside, a plain copy of
 * as many bytes as an all-gather writes, by all ranks at once. scripts/bench/peers/
 * mpi_collectives.c and gloo_collectives.py are the same for the peers.
 *   bench_collectives RANK WORLD JOB OPERATION BYTES
 * OPERATION: barrier, all_reduce (BYTES / 8 float64), all_gather (BYTES a rank), copy
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
  int32_t rank, world;
  const char *job, *operation;
  size_t bytes, all_bytes;
  char *mine, *all, *sums;
  otr_context* context;
  otr_comm* comm;
} bench;

static int is(const bench* b, const char* operation) {
  return strcmp(b->operation, operation) == 0;
}

static int setup(void* self, char* facts) {
  bench* b = self;
  otr_comm_options options;
  TRY(otr_context_create(NULL, &b->context));
  TRY(otr_comm_options_init(&options, sizeof options));
  options.rank = b->rank;
  options.world_size = b->world;
  options.job = b->job;
  TRY(otr_comm_create_shm(b->context, &options, &b->comm));
  b->all_bytes = b->bytes * (size_t)b->world;
  b->mine = bench_allocate(is(b, "copy") ? b->all_bytes : b->bytes + 64);
  b->all = bench_allocate(b->all_bytes + 64);
  b->sums = bench_allocate(b->bytes + 64);
  if (b->mine == NULL || b->all == NULL || b->sums == NULL) return bench_fail("out of memory");
  fill_float32((float*)b->mine, (uint32_t)b->rank, b->bytes / 4, 64);
  snprintf(facts, BENCH_FACTS, "{\"operation\": \"%s\"}", b->operation);
  return 0;
}

static int prepare(void* self) {
  bench* b = self;
  TRY(otr_comm_barrier(b->comm));
  return 0;
}

static int work(void* self) {
  bench* b = self;
  if (is(b, "barrier")) {
    TRY(otr_comm_barrier(b->comm));
  } else if (is(b, "all_reduce")) {
    TRY(otr_comm_all_reduce_sum(b->comm, (double*)b->sums, b->bytes / 8));
  } else if (is(b, "all_gather")) {
    TRY(otr_comm_all_gather(b->comm, b->mine, b->bytes, b->all));
  } else {
    memcpy(b->all, b->mine, b->all_bytes);
  }
  return 0;
}

/* What an all-gather left; of an all-reduce the sums of small integers. */
static int check(void* self, const char* folder, char* facts) {
  bench* b = self;
  float* sampled = NULL;
  size_t samples = 0;
  char name[64];
  (void)facts;
  double* sums = (double*)b->sums;
  for (size_t i = 0; i < b->bytes / 8; i++) sums[i] = (double)(b->rank + (int32_t)(i % 7));
  if (work(b) != 0) return -1;
  sampled = bench_allocate(sizeof(float) * (b->all_bytes / 4 / STRIDE + b->bytes / 8 + 1));
  if (sampled == NULL) return bench_fail("out of memory");
  if (is(b, "all_gather")) {
    for (size_t i = 0; i < b->all_bytes / 4; i += STRIDE) sampled[samples++] = ((float*)b->all)[i];
  }
  if (is(b, "all_reduce")) {
    for (size_t i = 0; i < b->bytes / 8; i++) sampled[samples++] = (float)sums[i];
  }
  memset(b->sums, 0, b->bytes); /* repeated sums stay finite */
  snprintf(name, sizeof name, "outrigger.%s.%d", b->operation, (int)b->rank);
  const int status = bench_write_samples(folder, name, sampled, samples);
  free(sampled);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  static bench b;
  b.rank = atoi(argv[1]);
  b.world = atoi(argv[2]);
  b.job = argv[3];
  b.operation = argv[4];
  b.bytes = strtoull(argv[5], NULL, 10);
  const bench_worker worker = {&b, setup, NULL, check, prepare, work, NULL};
  return bench_serve(&worker);
}
