/* SPDX-License-Identifier: Apache-2.0
 * The smallest whole use: learn y = W x. The gradient that enters backward is that of y, a 4 × 1
 * tensor. Everything is float32: with bf16 or fp16 in the configuration, acquired weights and slots
 * are of that dtype. Runs alone, or on more ranks: outrigger run -n 2 -- quickstart
 */
#include <outrigger.h>
#include <stdio.h>
#define TRY(call) \
  if ((call) != OTR_OK) return fprintf(stderr, "%s\n", otr_last_error_message()), 1

int main(void) {
  const char *config =
      "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.05}},"
      " \"zero_optimization\": {\"stage\": 3}}";
  const float x[4][2] = {{1, 0}, {0, 1}, {1, 1}, {2, -1}},
              target[4] = {3, -2, 1, 8}; /* W = 3, -2 */
  float zeros[2] = {0, 0}, error[4];
  int64_t w_shape[2] = {1, 2}, y_shape[2] = {4, 1}, w_id = 0;
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engine = NULL;
  otr_pass *pass = NULL;
  otr_tensor initial, w, dy, dw, scaled;

  TRY(otr_context_create(NULL, &context));
  TRY(otr_comm_from_env(context, NULL, &comm)); /* RANK, WORLD_SIZE … */
  TRY(otr_engine_create(comm, config, &engine));
  TRY(otr_tensor_init(zeros, "float32", 2, w_shape, &initial));
  TRY(otr_engine_add_parameter(engine, "W", &initial, NULL, &w_id));
  TRY(otr_engine_commit(engine));
  for (int step = 0; step < 300; step++) {
    TRY(otr_engine_acquire(engine, &w_id, 1, NULL, &w));
    if (w.dtype.code != OTR_DTYPE_FLOAT || w.dtype.bits != 32)
      return fprintf(stderr, "W is not float32, which this program computes in\n"), 1;
    const float *W = w.data;
    for (int i = 0; i < 4; i++) error[i] = W[0] * x[i][0] + W[1] * x[i][1] - target[i];
    TRY(otr_engine_release(engine, &w_id, 1, NULL));
    TRY(otr_tensor_init(error, "float32", 2, y_shape, &dy)); /* d(½ Σ error²) / dy */
    TRY(otr_pass_begin(engine, &dy, 1, NULL, &pass));
    TRY(otr_pass_get_output_grad(pass, 0, &scaled)); /* × loss scale / accumulation steps */
    TRY(otr_pass_get_slot(pass, w_id, &dw));         /* its place in the communication bucket */
    for (int c = 0; c < 2; c++) {
      ((float *)dw.data)[c] = 0;
      for (int i = 0; i < 4; i++) ((float *)dw.data)[c] += ((float *)scaled.data)[i] * x[i][c];
    }
    TRY(otr_pass_add_grad(pass, w_id, &dw, NULL));
    TRY(otr_pass_end(pass));
    otr_pass_destroy(pass);
    TRY(otr_engine_step(engine, NULL)); /* reduce over ranks, update the shard, publish */
  }
  TRY(otr_engine_acquire(engine, &w_id, 1, NULL, &w));
  printf("W = %.3f %.3f\n", ((float *)w.data)[0], ((float *)w.data)[1]);
  TRY(otr_engine_finalize(engine));
  otr_engine_destroy(engine), otr_comm_destroy(comm), otr_context_destroy(context);
  return 0;
}
