/* SPDX-License-Identifier: Apache-2.0
 * Two engines under one loss: h = E x (encoder), y = D h (decoder), each with a loss scale of its
 * own. The decoder's backward is a callback; the gradient of its input goes on to the encoder with
 * its tag, so that each factor is applied once; both step as one. Runs alone, or on more ranks.
 */
#include <math.h>
#include <outrigger.h>
#include <stdio.h>
#define TRY(call) \
  if ((call) != OTR_OK) return fprintf(stderr, "%s\n", otr_last_error_message()), 1

enum { SAMPLES = 4, IN = 2, HIDDEN = 2 };

typedef struct {
  const float *d, (*h)[HIDDEN]; /* the decoder's weight, its input */
  float dh[SAMPLES][HIDDEN];    /* out: the gradient of its input… */
  otr_call_info tag;            /* …and what it carries */
} Decoder;

/* From the scaled gradient of y to those of D and h. */
static int32_t decoder_vjp(otr_pass *pass, const otr_tensor *dy, int64_t count, void *user) {
  Decoder *decoder = user;
  const float *scaled = dy[0].data;
  float dd[HIDDEN] = {0};
  (void)count;
  for (int s = 0; s < SAMPLES; s++) {
    for (int i = 0; i < HIDDEN; i++) {
      dd[i] += scaled[s] * decoder->h[s][i];
      decoder->dh[s][i] = scaled[s] * decoder->d[i];
    }
  }
  int64_t shape[2] = {1, HIDDEN};
  otr_tensor grad;
  TRY(otr_tensor_init(dd, "float32", 2, shape, &grad));
  TRY(otr_pass_add_grad(pass, 0, &grad, NULL));
  TRY(otr_pass_get_tag(pass, &decoder->tag));
  return 0;
}

/* The encoder's pass begins with the tagged gradient of h. */
static int encoder_backward(otr_engine *encoder, Decoder *decoder, const float (*x)[IN]) {
  int64_t h_shape[2] = {SAMPLES, HIDDEN}, e_shape[2] = {HIDDEN, IN};
  float de[HIDDEN][IN] = {{0}};
  otr_tensor dh, scaled, grad;
  otr_pass *pass = NULL;
  TRY(otr_tensor_init(decoder->dh, "float32", 2, h_shape, &dh));
  TRY(otr_pass_begin(encoder, &dh, 1, &decoder->tag, &pass));
  TRY(otr_pass_get_output_grad(pass, 0, &scaled));
  const float(*seed)[HIDDEN] = scaled.data;
  for (int s = 0; s < SAMPLES; s++) {
    for (int i = 0; i < HIDDEN; i++) {
      for (int j = 0; j < IN; j++) de[i][j] += seed[s][i] * x[s][j];
    }
  }
  TRY(otr_tensor_init(de, "float32", 2, e_shape, &grad));
  TRY(otr_pass_add_grad(pass, 0, &grad, NULL));
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  return 0;
}

static int make(otr_comm *comm, const char *config, const char *name, float *values, int64_t *shape,
                otr_engine **engine) {
  otr_tensor initial;
  int64_t id = 0;
  TRY(otr_engine_create(comm, config, engine));
  TRY(otr_tensor_init(values, "float32", 2, shape, &initial));
  TRY(otr_engine_add_parameter(*engine, name, &initial, NULL, &id));
  TRY(otr_engine_commit(*engine));
  return 0;
}

static int train(otr_engine **engines, const float (*x)[IN], const float *target) {
  const int64_t id = 0;
  int64_t y_shape[2] = {SAMPLES, 1};
  float h[SAMPLES][HIDDEN], error[SAMPLES], squares = 0;
  otr_step_report reports[2] = {OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT};
  for (int step = 0; step < 400; step++) {
    otr_tensor e, d, dy;
    TRY(otr_engine_acquire(engines[0], &id, 1, NULL, &e));
    TRY(otr_engine_acquire(engines[1], &id, 1, NULL, &d));
    const float(*weights)[IN] = e.data, *row = d.data;
    squares = 0;
    for (int s = 0; s < SAMPLES; s++) {
      error[s] = -target[s];
      for (int i = 0; i < HIDDEN; i++) {
        h[s][i] = weights[i][0] * x[s][0] + weights[i][1] * x[s][1];
        error[s] += row[i] * h[s][i];
      }
      squares += error[s] * error[s];
    }
    Decoder decoder = {.d = row, .h = (const float(*)[HIDDEN])h};
    TRY(otr_call_info_init(&decoder.tag, sizeof decoder.tag));
    TRY(otr_tensor_init(error, "float32", 2, y_shape, &dy));
    TRY(otr_engine_backward(engines[1], &dy, 1, NULL, decoder_vjp, &decoder));
    if (encoder_backward(engines[0], &decoder, x) != 0) return 1;
    TRY(otr_step_many(engines, 2, NULL, reports)); /* both, or neither */
  }
  printf("root mean square error %.3f, loss scales %g and %g\n", sqrt((double)squares / SAMPLES),
         reports[0].loss_scale, reports[1].loss_scale);
  return 0;
}

int main(void) {
  const char *encoder =
      "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"fp16\"}, \"fp16\": {\"loss_scale\": "
      "128},"
      " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02}}}";
  const char *decoder =
      "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"fp16\"}, \"fp16\": {\"loss_scale\": "
      "4096},"
      " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02}},"
      " \"zero_optimization\": {\"stage\": 2}}";
  const float x[SAMPLES][IN] = {{1, 0}, {0, 1}, {1, 1}, {2, -1}}, target[SAMPLES] = {3, -2, 1, 8};
  float e[4] = {0.5f, 0.1f, -0.2f, 0.4f}, d[2] = {0.3f, -0.6f};
  int64_t e_shape[2] = {HIDDEN, IN}, d_shape[2] = {1, HIDDEN};
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engines[2];
  TRY(otr_context_create(NULL, &context));
  TRY(otr_comm_from_env(context, NULL, &comm));
  if (make(comm, encoder, "E", e, e_shape, &engines[0]) != 0) return 1;
  if (make(comm, decoder, "D", d, d_shape, &engines[1]) != 0) return 1;
  if (train(engines, x, target) != 0) return 1;
  for (int i = 0; i < 2; i++) {
    TRY(otr_engine_finalize(engines[i]));
    otr_engine_destroy(engines[i]);
  }
  otr_comm_destroy(comm), otr_context_destroy(context);
  return 0;
}
