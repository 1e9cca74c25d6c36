/* SPDX-License-Identifier: Apache-2.0
 * A GPT: token and position embeddings, pre-norm blocks of causal attention and a GELU network, a
 * last norm, and the transposed token embedding as output layer. Forward and backward are written
 * by hand.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stdint.h>

#include "real.h"
#include "weights.h"

enum { GPT_MAX_LAYERS = 64 };

typedef struct gpt_config {
  int vocab;
  int context; /* longest sequence */
  int width;
  int heads;
  int layers;
  int batch; /* most sequences at a time */
} gpt_config;

/* The parameters of one block, in the order in which they are declared. */
enum block_parameter {
  NORM1_GAIN,
  NORM1_BIAS,
  QKV_WEIGHT, /* [3 · width][width] */
  QKV_BIAS,
  OUT_WEIGHT, /* [width][width] */
  OUT_BIAS,
  NORM2_GAIN,
  NORM2_BIAS,
  UP_WEIGHT, /* [4 · width][width] */
  UP_BIAS,
  DOWN_WEIGHT, /* [width][4 · width] */
  DOWN_BIAS,
  BLOCK_PARAMETERS
};

/* What one block's forward keeps for its backward. */
typedef struct block_activations {
  real *in; /* the residual stream that enters */
  real *norm1, *mean1, *deviation1;
  real *qkv, *probability, *attention;
  real *middle; /* the residual stream between attention and network */
  real *norm2, *mean2, *deviation2;
  real *up, *gelu;
} block_activations;

typedef struct gpt {
  gpt_config config;
  weight_store *weights;
  int64_t embedding[2];                            /* ids: token table, position table */
  int64_t block[GPT_MAX_LAYERS][BLOCK_PARAMETERS]; /* ids */
  int64_t last_norm[2];                            /* ids: gain, bias */

  int sequences, length; /* of the last forward */
  const int *inputs;
  block_activations at[GPT_MAX_LAYERS];
  real *last_in, *norm, *mean, *deviation;
  real *logits;                                  /* [sequences][length][vocab] */
  real *d_logits;                                /* gradient of the mean loss, the same shape */
  real *d_stream, *d_narrow, *d_wide, *d_scores; /* backward's scratch */
  real *memory;
} gpt;

/* Declares all parameters; the engine is committed after that. */
gpt *gpt_create(const gpt_config *config, weight_store *w, uint64_t seed);
void gpt_destroy(gpt *model);

/* Fills model->logits from inputs[sequences][length], which backward reads again. */
void gpt_forward(gpt *model, const int *inputs, int sequences, int length);

/* Mean loss of the last forward in nats per character; fills model->d_logits. */
double gpt_loss(gpt *model, const int *targets);

/* Carries d_logits (as the pass scaled it) back and hands every parameter's gradient over. */
void gpt_backward(gpt *model, otr_pass *pass, const real *d_logits);

#endif
