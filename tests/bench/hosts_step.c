/* SPDX-License-Identifier: Apache-2.0
 *
 * A step and the forward behind it, between hosts: waited for, and begun, so that the forward goes
 * on with the parameters that have come. Through the public header, under a launcher; rank 0 prints
 * one line of JSON, of each round the longest rank's seconds.
 *   mpirun -n WORLD bench_hosts_step ELEMENTS ROUNDS     ELEMENTS: of each of 16 parameters
 * The forward reads each parameter so often that all of it takes as long as the step alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "numbers.h"
#include "outrigger.h"
#include "worker.h"

#define TRY(call)                                                 \
  if ((call) != OTR_OK) {                                         \
    fprintf(stderr, "%s: %s\n", #call, otr_last_error_message()); \
    exit(1);                                                      \
  }

enum { PARAMETERS = 16, MOST_RANKS = 64, MOST_ROUNDS = 100 };

static const char* const CONFIGURATION =
    "{\"zero_optimization\": {\"stage\": 1}, \"bf16\": {\"enabled\": true, "
    "\"bf16_master_weights_and_grads\": true, \"bf16_optimizer_states\": true}, "
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}";

typedef struct {
  otr_comm* comm;
  otr_engine* engine;
  int32_t rank, world;
  int64_t elements;
  uint16_t* gradient;
  long repeats; /* of a forward */
  float seen;   /* what forwards have computed */
} bench;

static double seconds_since(int64_t start) { return 1e-9 * (double)(bench_now() - start); }

static double longest(const bench* b, double mine) {
  double all[MOST_RANKS], most = 0;
  TRY(otr_comm_all_gather(b->comm, &mine, sizeof mine, all));
  for (int32_t r = 0; r < b->world; r++) most = all[r] > most ? all[r] : most;
  return most;
}

/* And the sums over ranks, which no side waits for. */
static void backward(bench* b) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  otr_pass* pass = NULL;
  TRY(otr_pass_begin(b->engine, NULL, 0, NULL, &pass));
  for (int64_t id = PARAMETERS - 1; id >= 0; id--) {
    otr_tensor grad;
    TRY(otr_tensor_init(b->gradient, "bfloat16", 1, &b->elements, &grad));
    TRY(otr_pass_add_grad(pass, id, &grad, NULL));
  }
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  TRY(otr_engine_reduce(b->engine, &report));
  TRY(otr_comm_barrier(b->comm));
}

static void forward(bench* b) {
  for (int64_t id = 0; id < PARAMETERS; id++) {
    otr_tensor weight;
    TRY(otr_engine_acquire(b->engine, &id, 1, NULL, &weight));
    for (long k = 0; k < b->repeats; k++) {
      float sum = 0;
      for (int64_t i = 0; i < b->elements; i++) sum += float_of(((const uint16_t*)weight.data)[i]);
      b->seen += sum;
    }
    TRY(otr_engine_release(b->engine, &id, 1, NULL));
  }
}

/* A step and a forward, in seconds; without a forward where it has no repeats. */
static double timed(bench* b, int begin) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  backward(b);
  const int64_t start = bench_now();
  if (begin) {
    TRY(otr_engine_step_begin(b->engine));
  } else {
    TRY(otr_engine_step(b->engine, &report));
  }
  if (b->repeats > 0) forward(b);
  if (begin) TRY(otr_engine_report(b->engine, -1, &report));
  const double mine = seconds_since(start);
  if (report.outcome != OTR_STEP_APPLIED) exit(1);
  return longest(b, mine);
}

/* All ranks see the same weights, to the bit. */
static int is_alike(const bench* b) {
  uint64_t mine = 0, all[MOST_RANKS];
  for (int64_t id = 0; id < PARAMETERS; id++) {
    otr_tensor weight;
    TRY(otr_engine_acquire(b->engine, &id, 1, NULL, &weight));
    for (int64_t i = 0; i < b->elements; i++) {
      mine = mine * 6364136223846793005u + ((const uint16_t*)weight.data)[i];
    }
    TRY(otr_engine_release(b->engine, &id, 1, NULL));
  }
  TRY(otr_comm_all_gather(b->comm, &mine, sizeof mine, all));
  for (int32_t r = 0; r < b->world; r++) {
    if (all[r] != mine) return 0;
  }
  return 1;
}

static void choose_repeats(bench* b) {
  double step = 0;
  for (int i = 0; i < 4; i++) step = timed(b, 0);
  b->repeats = 1;
  const int64_t start = bench_now();
  forward(b);
  const double wanted = step / seconds_since(start);
  b->repeats = wanted < 1 ? 1 : (long)(wanted + 0.5);
  TRY(otr_comm_broadcast(b->comm, &b->repeats, sizeof b->repeats, 0));
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  static bench b;
  static double seconds[2][MOST_ROUNDS];
  otr_context* context = NULL;
  b.elements = strtoll(argv[1], NULL, 10);
  const int rounds = atoi(argv[2]);
  if (rounds < 1 || rounds > MOST_ROUNDS) return 2;
  TRY(otr_context_create(NULL, &context));
  TRY(otr_comm_from_env(context, NULL, &b.comm));
  TRY(otr_comm_rank(b.comm, &b.rank));
  TRY(otr_comm_size(b.comm, &b.world));
  if (b.world > MOST_RANKS) return 2;
  TRY(otr_engine_create(b.comm, CONFIGURATION, &b.engine));
  b.gradient = malloc(sizeof(uint16_t) * (size_t)b.elements);
  float* initial = malloc(sizeof(float) * (size_t)b.elements);
  if (b.gradient == NULL || initial == NULL) return 1;
  fill_float32(initial, 1, (size_t)b.elements, 64);
  fill_bf16(b.gradient, (uint32_t)b.rank, (size_t)b.elements, 64);
  for (int p = 0; p < PARAMETERS; p++) {
    char name[16];
    otr_tensor values;
    int64_t id = -1;
    snprintf(name, sizeof name, "p%d", p);
    TRY(otr_tensor_init(initial, "float32", 1, &b.elements, &values));
    TRY(otr_engine_add_parameter(b.engine, name, &values, NULL, &id));
  }
  TRY(otr_engine_commit(b.engine));
  choose_repeats(&b);
  int alike = 1;
  for (int i = -1; i < rounds; i++) {
    for (int turn = 0; turn < 2; turn++) {
      const int begin = (turn + i + 1) % 2;
      const double taken = timed(&b, begin);
      if (i >= 0) seconds[begin][i] = taken;
      alike = alike && is_alike(&b);
    }
  }
  if (b.rank == 0) {
    const char* const names[2] = {"waited", "begun"};
    const int same = alike && b.seen - b.seen == 0;
    printf("{\"repeats\": %ld, \"same\": %s", b.repeats, same ? "true" : "false");
    for (int begin = 0; begin < 2; begin++) {
      printf(", \"%s\": [", names[begin]);
      for (int i = 0; i < rounds; i++) printf("%s%.6f", i > 0 ? ", " : "", seconds[begin][i]);
      printf("]");
    }
    printf("}\n");
  }
  free(initial);
  free(b.gradient);
  otr_engine_destroy(b.engine);
  otr_comm_destroy(b.comm);
  otr_context_destroy(context);
  return 0;
}
