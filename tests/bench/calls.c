/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call costs in C, and, to set it beside, the arithmetic of add_grad alone. The same calls
 * in other languages: scripts/bench/cases/calls.py says where.
 *   bench_calls OPERATION
 * OPERATION: add_grad (a gradient of 16 float32 values, added to an open pass), step (a pass
 * without gradients, and its step), addition (16 values added to 16)
 */
#include <stdio.h>
#include <string.h>

#include "outrigger.h"
#include "worker.h"

enum { VALUES = 16 };

#define TRY(call)                                                                       \
  do {                                                                                  \
    if ((call) != OTR_OK) return bench_fail("%s: %s", #call, otr_last_error_message()); \
  } while (0)

typedef struct bench {
  const char* operation;
  float gradient[VALUES], sum[VALUES];
  int64_t shape[1], id;
  otr_tensor tensor;
  otr_context* context;
  otr_comm* comm;
  otr_engine* engine;
  otr_pass* pass;
} bench;

static const char* const kConfig =
    "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.0}}, \"gradient_clipping\": 0}";

static int setup(void* self, char* facts) {
  bench* b = self;
  (void)facts;
  b->shape[0] = VALUES;
  for (int i = 0; i < VALUES; i++) b->gradient[i] = 1.0F;
  otr_context_options options;
  TRY(otr_context_options_init(&options, sizeof options));
  options.workers = 1;
  TRY(otr_context_create(&options, &b->context));
  TRY(otr_comm_create_self(b->context, &b->comm));
  TRY(otr_engine_create(b->comm, kConfig, &b->engine));
  TRY(otr_tensor_init(b->gradient, "float32", 1, b->shape, &b->tensor));
  TRY(otr_engine_add_parameter(b->engine, "w", &b->tensor, NULL, &b->id));
  TRY(otr_engine_commit(b->engine));
  return 0;
}

static int check(void* self, const char* folder, char* facts) {
  (void)self;
  (void)folder;
  (void)facts;
  return 0;
}

/* Ends the last run's pass and its window, and begins the next one. */
static int prepare(void* self) {
  bench* b = self;
  if (strcmp(b->operation, "add_grad") != 0) return 0;
  if (b->pass) {
    TRY(otr_pass_end(b->pass));
    otr_pass_destroy(b->pass);
    b->pass = NULL;
    TRY(otr_engine_step(b->engine, NULL));
  }
  TRY(otr_pass_begin(b->engine, NULL, 0, NULL, &b->pass));
  return 0;
}

static int add_grad(void* self) {
  bench* b = self;
  TRY(otr_pass_add_grad(b->pass, b->id, &b->tensor, NULL));
  return 0;
}

static int step(void* self) {
  bench* b = self;
  otr_step_report report = OTR_STEP_REPORT_INIT;
  TRY(otr_pass_begin(b->engine, NULL, 0, NULL, &b->pass));
  TRY(otr_pass_end(b->pass));
  otr_pass_destroy(b->pass);
  b->pass = NULL;
  TRY(otr_engine_step(b->engine, &report));
  return 0;
}

static int addition(void* self) {
  bench* b = self;
  for (int i = 0; i < VALUES; i++) b->sum[i] += b->gradient[i];
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  static bench b;
  b.operation = argv[1];
  int (*work)(void*) = strcmp(argv[1], "add_grad") == 0 ? add_grad
                       : strcmp(argv[1], "step") == 0   ? step
                                                        : addition;
  const bench_worker worker = {&b, setup, NULL, check, prepare, work, NULL};
  return bench_serve(&worker);
}
