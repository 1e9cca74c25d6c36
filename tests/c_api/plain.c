/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole contract in C99, with nothing but the public header: it compiles, links to the shared
 * library and trains one parameter. Exit status 0, or the line that failed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "outrigger.h"

static int line;
#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, \
              otr_last_error_message());                                  \
      line = __LINE__;                                                    \
      return;                                                             \
    }                                                                     \
  } while (0)

static void versions(void) {
  CHECK(strcmp(otr_version(), OTR_VERSION_STRING) == 0);
  CHECK(otr_abi_version() == OTR_ABI_VERSION);
  CHECK(strcmp(otr_status_name(OTR_E_SHAPE), "OTR_E_SHAPE") == 0);
  CHECK(otr_context_create(NULL, NULL) == OTR_E_ARGUMENT);
  CHECK(otr_last_error_message()[0] != '\0');
}

static void engine_life(void) {
  otr_context* context;
  otr_comm* comm;
  otr_engine* engine;
  otr_pass* pass;
  float values[6] = {1, 2, 3, 4, 5, 6}, grads[6] = {1, -1, 1, -1, 1, -1}, loss = 1;
  int64_t shape[2] = {2, 3}, id = -1, live = -1;
  otr_tensor value, grad, seed, seen;
  otr_step_report report = OTR_STEP_REPORT_INIT;
  otr_param_options options;
  char config[65536];
  size_t size = sizeof config;
  int i;

  CHECK(otr_context_create(NULL, &context) == OTR_OK);
  CHECK(otr_comm_create_self(context, &comm) == OTR_OK);
  CHECK(otr_engine_create(comm, NULL, &engine) == OTR_OK);
  CHECK(otr_engine_set_group_value(engine, NULL, "lr", 0.5) == OTR_OK);
  CHECK(otr_tensor_init(values, "float32", 2, shape, &value) == OTR_OK);
  CHECK(otr_tensor_init(grads, "float32", 2, shape, &grad) == OTR_OK);
  CHECK(otr_tensor_init(&loss, "float32", 0, NULL, &seed) == OTR_OK);
  CHECK(otr_param_options_init(&options, sizeof options) == OTR_OK);
  CHECK(otr_engine_add_parameter(engine, "w", &value, &options, &id) == OTR_OK);
  CHECK(id == 0);
  CHECK(otr_engine_commit(engine) == OTR_OK);
  CHECK(otr_pass_begin(engine, &seed, 1, NULL, &pass) == OTR_OK);
  CHECK(otr_pass_get_output_grad(pass, 0, &seen) == OTR_OK);
  CHECK(*(const float*)seen.data == 1.0f);
  CHECK(otr_pass_add_grad(pass, id, &grad, NULL) == OTR_OK);
  CHECK(otr_pass_end(pass) == OTR_OK);
  CHECK(otr_engine_step(engine, &report) == OTR_OK);
  CHECK(report.outcome == OTR_STEP_APPLIED && report.reason == OTR_SKIP_NONE);
  CHECK(report.grad_norm == sqrt(6.0) && report.updates == 6);
  CHECK(otr_engine_parameter_read(engine, id, OTR_VALUE_MASTER, &value) == OTR_OK);
  /* Adam's first step is lr against the gradient's sign. */
  for (i = 0; i < 6; i++) CHECK(fabsf(values[i] - ((float)(i + 1) - 0.5f * grads[i])) < 1e-5f);
  CHECK(otr_engine_config(engine, config, &size) == OTR_OK);
  CHECK(size == strlen(config) + 1);
  otr_context_destroy(context);
  otr_comm_destroy(comm);
  CHECK(otr_engine_live_children(engine, &live) == OTR_OK && live == 1);
  CHECK(otr_engine_finalize(engine) == OTR_OK);
  otr_engine_destroy(engine);
  otr_pass_destroy(pass);
}

static void shard_alone(void) {
  otr_context* context;
  otr_shard* shard;
  otr_optimizer* optimizer;
  float weights[3] = {1, 2, 3}, grads[3] = {1, 1, 1};
  int64_t count = 3, bytes = 0;
  otr_tensor w, g, state;
  CHECK(otr_context_create(NULL, &context) == OTR_OK);
  CHECK(otr_tensor_init(weights, "float32", 1, &count, &w) == OTR_OK);
  CHECK(otr_tensor_init(grads, "float32", 1, &count, &g) == OTR_OK);
  CHECK(otr_shard_wrap(context, &w, &g, NULL, &shard) == OTR_OK);
  CHECK(otr_optimizer_create(context, "{\"params\": {\"lr\": 0.5}}", &optimizer) == OTR_OK);
  CHECK(otr_optimizer_step(optimizer, &shard, 1, NULL) == OTR_OK);
  CHECK(fabsf(weights[2] - 2.5f) < 1e-5f);
  CHECK(otr_shard_state(shard, OTR_VALUE_EXP_AVG, &state) == OTR_OK && state.shape[0] == 3);
  CHECK(otr_shard_state_bytes(shard, &bytes) == OTR_OK && bytes == 24);
  otr_context_destroy(context);
  otr_optimizer_destroy(optimizer);
  otr_shard_destroy(shard);
}

int main(void) {
  versions();
  engine_life();
  shard_alone();
  return line == 0 ? 0 : 1;
}
