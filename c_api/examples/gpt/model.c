/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <string.h>

#include "layers.h"

static void block_forward(gpt *model, int layer, real *out) {
  const real *w[BLOCK_PARAMETERS];
  block_activations *a = &model->at[layer];
  int width = model->config.width, heads = model->config.heads;
  int rows = model->sequences * model->length;
  long stream = (long)rows * width;

  weights_acquire(model->weights, model->block[layer], BLOCK_PARAMETERS, w);
  layer_norm_forward(a->norm1, a->mean1, a->deviation1, a->in, w[NORM1_GAIN], w[NORM1_BIAS], rows,
                     width);
  linear_forward(a->qkv, a->norm1, w[QKV_WEIGHT], w[QKV_BIAS], rows, width, 3 * width);
  attention_forward(a->attention, a->probability, a->qkv, model->sequences, model->length, width,
                    heads);
  linear_forward(a->middle, a->attention, w[OUT_WEIGHT], w[OUT_BIAS], rows, width, width);
  for (long i = 0; i < stream; i++) a->middle[i] += a->in[i];

  layer_norm_forward(a->norm2, a->mean2, a->deviation2, a->middle, w[NORM2_GAIN], w[NORM2_BIAS],
                     rows, width);
  linear_forward(a->up, a->norm2, w[UP_WEIGHT], w[UP_BIAS], rows, width, 4 * width);
  gelu_forward(a->gelu, a->up, 4 * stream);
  linear_forward(out, a->gelu, w[DOWN_WEIGHT], w[DOWN_BIAS], rows, 4 * width, width);
  for (long i = 0; i < stream; i++) out[i] += a->middle[i];
  weights_release(model->weights, model->block[layer], BLOCK_PARAMETERS);
}

/* A linear layer's backward with the hand-over of both gradients. id: of its weight and its bias.
 */
static void linear_to_engine(gpt *model, otr_pass *pass, const int64_t *id, real *d_in,
                             const real *d_out, const real *in, const real *weight, int in_width,
                             int out_width) {
  real *d_weight = gradient_place(model->weights, pass, id[0]);
  real *d_bias = gradient_place(model->weights, pass, id[1]);
  linear_backward(d_in, d_weight, d_bias, d_out, in, weight, model->sequences * model->length,
                  in_width, out_width);
  gradient_hand_over(model->weights, pass, id[1], d_bias);
  gradient_hand_over(model->weights, pass, id[0], d_weight);
}

/* The same for a norm. id: of its gain and its bias. The gradient adds to d_stream, because a
 * residual connection runs beside each norm. */
static void norm_to_engine(gpt *model, otr_pass *pass, const int64_t *id, const real *d_out,
                           const real *in, const real *mean, const real *deviation,
                           const real *gain) {
  real *d_gain = gradient_place(model->weights, pass, id[0]);
  real *d_bias = gradient_place(model->weights, pass, id[1]);
  layer_norm_backward(model->d_stream, d_gain, d_bias, d_out, in, mean, deviation, gain,
                      model->sequences * model->length, model->config.width);
  gradient_hand_over(model->weights, pass, id[1], d_bias);
  gradient_hand_over(model->weights, pass, id[0], d_gain);
}

/* d_stream holds the gradient of the residual stream and passes through; each branch adds its part.
 * Parameter gradients leave as soon as they exist, so their reduction runs beside the rest of
 * backward. */
static void block_backward(gpt *model, otr_pass *pass, int layer) {
  const real *w[BLOCK_PARAMETERS];
  const int64_t *id = model->block[layer];
  const block_activations *a = &model->at[layer];
  real *d_narrow = model->d_narrow, *d_wide = model->d_wide;
  int width = model->config.width, heads = model->config.heads;
  long stream = (long)model->sequences * model->length * width;

  weights_acquire(model->weights, id, BLOCK_PARAMETERS, w);
  linear_to_engine(model, pass, &id[DOWN_WEIGHT], d_wide, model->d_stream, a->gelu, w[DOWN_WEIGHT],
                   4 * width, width);
  gelu_backward(d_wide, d_wide, a->up, 4 * stream);
  linear_to_engine(model, pass, &id[UP_WEIGHT], d_narrow, d_wide, a->norm2, w[UP_WEIGHT], width,
                   4 * width);
  norm_to_engine(model, pass, &id[NORM2_GAIN], d_narrow, a->middle, a->mean2, a->deviation2,
                 w[NORM2_GAIN]);

  linear_to_engine(model, pass, &id[OUT_WEIGHT], d_narrow, model->d_stream, a->attention,
                   w[OUT_WEIGHT], width, width);
  attention_backward(d_wide, model->d_scores, d_narrow, a->probability, a->qkv, model->sequences,
                     model->length, width, heads);
  linear_to_engine(model, pass, &id[QKV_WEIGHT], d_narrow, d_wide, a->norm1, w[QKV_WEIGHT], width,
                   3 * width);
  norm_to_engine(model, pass, &id[NORM1_GAIN], d_narrow, a->in, a->mean1, a->deviation1,
                 w[NORM1_GAIN]);
  weights_release(model->weights, id, BLOCK_PARAMETERS);
}

void gpt_forward(gpt *model, const int *inputs, int sequences, int length) {
  const gpt_config *config = &model->config;
  int width = config->width, rows = sequences * length;
  model->inputs = inputs;
  model->sequences = sequences;
  model->length = length;

  const real *table[2];
  weights_acquire(model->weights, model->embedding, 2, table);
  embedding_forward(model->at[0].in, inputs, table[0], table[1], rows, length, width);
  weights_release(model->weights, model->embedding, 2);

  for (int l = 0; l < config->layers; l++) {
    block_forward(model, l, l + 1 < config->layers ? model->at[l + 1].in : model->last_in);
  }

  const real *norm[2];
  weights_acquire(model->weights, model->last_norm, 2, norm);
  layer_norm_forward(model->norm, model->mean, model->deviation, model->last_in, norm[0], norm[1],
                     rows, width);
  weights_release(model->weights, model->last_norm, 2);

  weights_acquire(model->weights, model->embedding, 1, table);
  linear_forward(model->logits, model->norm, table[0], NULL, rows, width, config->vocab);
  weights_release(model->weights, model->embedding, 1);
}

double gpt_loss(gpt *model, const int *targets) {
  return cross_entropy(model->d_logits, model->logits, targets, model->sequences * model->length,
                       model->config.vocab);
}

/* The token table is used twice, as output layer and as embedding: it gets two gradients, which
 * add. */
void gpt_backward(gpt *model, otr_pass *pass, const real *d_logits) {
  const gpt_config *config = &model->config;
  int width = config->width, rows = model->sequences * model->length;
  const int64_t *id = model->embedding;
  weight_store *from = model->weights;

  const real *table = NULL, *norm[2];
  weights_acquire(from, id, 1, &table);
  real *d_output = gradient_place(from, pass, id[0]);
  linear_backward(model->d_narrow, d_output, NULL, d_logits, model->norm, table, rows, width,
                  config->vocab);
  gradient_hand_over(from, pass, id[0], d_output);
  weights_release(from, id, 1);

  memset(model->d_stream, 0, (size_t)rows * (size_t)width * sizeof(real));
  weights_acquire(from, model->last_norm, 2, norm);
  norm_to_engine(model, pass, model->last_norm, model->d_narrow, model->last_in, model->mean,
                 model->deviation, norm[0]);
  weights_release(from, model->last_norm, 2);

  for (int l = config->layers; l-- > 0;) block_backward(model, pass, l);

  real *d_token = gradient_place(from, pass, id[0]);
  real *d_position = gradient_place(from, pass, id[1]);
  memset(d_token, 0, (size_t)config->vocab * (size_t)width * sizeof(real));
  memset(d_position, 0, (size_t)config->context * (size_t)width * sizeof(real));
  embedding_backward(d_token, d_position, model->d_stream, model->inputs, rows, model->length,
                     width);
  gradient_hand_over(from, pass, id[1], d_position);
  gradient_hand_over(from, pass, id[0], d_token);
}
