/* SPDX-License-Identifier: Apache-2.0
 * An update rule of the host's own, here momentum: the engine sums, scales and clips gradients,
 * decides over all ranks and publishes; the host updates the elements that its rank owns. It pulls
 * weights towards a target.
 */
#include <math.h>
#include <outrigger.h>
#include <stdint.h>
#include <stdio.h>

#define TRY(call)                                                 \
  if ((call) != OTR_OK) {                                         \
    fprintf(stderr, "%s: %s\n", #call, otr_last_error_message()); \
    return 1;                                                     \
  }

enum { COUNT = 1000, STEPS = 200 };

static float target(int64_t i) { return (float)sin(0.01 * (double)i); }

int main(void) {
  const char *config =
      "{\"optimizer\": {\"type\": \"Host\"}, \"zero_optimization\": {\"stage\": 2},"
      " \"gradient_clipping\": 1.0}";
  static float whole[COUNT], grads[COUNT];
  static float weight[COUNT], grad[COUNT], momentum[COUNT]; /* of what this rank owns */
  int64_t shape[1] = {COUNT}, id = 0, first = 0, count = 0;
  int32_t has_grad = 0;
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engine = NULL;
  otr_pass *pass = NULL;
  otr_tensor initial, gradient, shown, w, g;
  otr_step_report report = OTR_STEP_REPORT_INIT;

  TRY(otr_context_create(NULL, &context));
  TRY(otr_comm_from_env(context, NULL, &comm));
  TRY(otr_engine_create(comm, config, &engine));
  TRY(otr_tensor_init(whole, "float32", 1, shape, &initial));
  TRY(otr_tensor_init(grads, "float32", 1, shape, &gradient));
  TRY(otr_engine_add_parameter(engine, "w", &initial, NULL, &id));
  TRY(otr_engine_commit(engine));

  TRY(otr_engine_local_range(engine, id, &first, &count));
  TRY(otr_tensor_init(weight, "float32", 1, &count, &w));
  TRY(otr_tensor_init(grad, "float32", 1, &count, &g));

  for (int step = 0; step < STEPS; step++) {
    TRY(otr_engine_acquire(engine, &id, 1, NULL, &shown));
    for (int64_t i = 0; i < COUNT; i++) grads[i] = ((const float *)shown.data)[i] - target(i);
    TRY(otr_engine_release(engine, &id, 1, NULL));
    TRY(otr_pass_begin(engine, NULL, 0, NULL, &pass));
    TRY(otr_pass_add_grad(pass, id, &gradient, NULL));
    TRY(otr_pass_end(pass));
    otr_pass_destroy(pass);

    TRY(otr_engine_reduce(engine, &report));
    TRY(otr_engine_has_grad(engine, id, &has_grad));
    if (report.reason == OTR_SKIP_NONE && has_grad) {
      TRY(otr_engine_local_read(engine, id, OTR_VALUE_GRAD, &g));
      TRY(otr_engine_local_read(engine, id, OTR_VALUE_MASTER, &w));
      for (int64_t i = 0; i < count; i++) {
        momentum[i] = 0.9F * momentum[i] + (float)report.clip_coefficient * grad[i];
        weight[i] -= 0.1F * momentum[i];
      }
      TRY(otr_engine_local_write(engine, id, OTR_VALUE_MASTER, &w));
    }
    TRY(otr_engine_step(engine, &report)); /* publishes what the ranks have written, or skips */
  }

  double distance = 0;
  TRY(otr_engine_parameter_read(engine, id, OTR_VALUE_MASTER, &initial));
  for (int64_t i = 0; i < COUNT; i++) distance += fabs((double)(whole[i] - target(i))) / COUNT;
  printf("mean distance %.4f after %lld steps; this rank updates %lld of %d weights\n", distance,
         (long long)report.applied_steps, (long long)count, COUNT);
  TRY(otr_engine_finalize(engine));
  otr_engine_destroy(engine);
  otr_comm_destroy(comm);
  otr_context_destroy(context);
  return distance < 0.01 ? 0 : 1;
}
