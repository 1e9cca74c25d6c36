/* SPDX-License-Identifier: Apache-2.0
 * Built from the frozen header, run against today's library: one engine over its whole life. */
#include OTR_FROZEN_HEADER

#include <stdio.h>

#define TRY(call)                                                                                \
  do {                                                                                           \
    int32_t status = (call);                                                                     \
    if (status != OTR_OK) {                                                                      \
      fprintf(stderr, "%s: %s: %s\n", #call, otr_status_name(status), otr_last_error_message()); \
      return 1;                                                                                  \
    }                                                                                            \
  } while (0)

#define EXPECT(condition)                            \
  do {                                               \
    if (!(condition)) {                              \
      fprintf(stderr, "expected: %s\n", #condition); \
      return 1;                                      \
    }                                                \
  } while (0)

int main(void) {
  otr_context_options options;
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engine = NULL;
  otr_pass *pass = NULL;
  otr_step_report report = OTR_STEP_REPORT_INIT;
  otr_tensor weight, gradient, now;
  float start[6] = {1, 2, 3, 4, 5, 6}, slope[6] = {1, -1, 1, -1, 1, -1}, values[6];
  int64_t shape[2] = {2, 3}, id = -1;
  int i;

  EXPECT(otr_abi_version() == OTR_ABI_VERSION);
  TRY(otr_context_options_init(&options, sizeof options));
  TRY(otr_context_create(&options, &context));
  TRY(otr_comm_create_self(context, &comm));
  TRY(otr_engine_create(comm, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}}",
                        &engine));
  TRY(otr_tensor_init(start, "float32", 2, shape, &weight));
  TRY(otr_tensor_init(slope, "float32", 2, shape, &gradient));
  TRY(otr_tensor_init(values, "float32", 2, shape, &now));
  TRY(otr_engine_add_parameter(engine, "weight", &weight, NULL, &id));
  TRY(otr_engine_commit(engine));
  TRY(otr_pass_begin(engine, NULL, 0, NULL, &pass));
  TRY(otr_pass_add_grad(pass, id, &gradient, NULL));
  TRY(otr_pass_end(pass));
  TRY(otr_engine_step(engine, &report));
  EXPECT(report.outcome == OTR_STEP_APPLIED && report.applied_steps == 1);
  TRY(otr_engine_parameter_read(engine, id, OTR_VALUE_MASTER, &now));
  for (i = 0; i < 6; ++i) { /* Adam's first step goes about lr against the gradient's sign */
    float moved = (values[i] - start[i]) * -slope[i];
    EXPECT(moved > 0.4f && moved < 0.6f);
  }
  EXPECT(otr_engine_parameter_count(engine, NULL) == OTR_E_ARGUMENT);
  EXPECT(otr_last_error_message()[0] != '\0');
  TRY(otr_engine_finalize(engine));
  otr_pass_destroy(pass);
  otr_context_destroy(context); /* any order: children hold their parent */
  otr_engine_destroy(engine);
  otr_comm_destroy(comm);
  return 0;
}
