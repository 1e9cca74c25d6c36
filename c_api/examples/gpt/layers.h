/* SPDX-License-Identifier: Apache-2.0
 * The layers of a GPT, each with its forward and its backward. Arrays are row-major; "rows" counts
 * positions of all sequences (sequences × length). Weights of a linear layer are
 * [out_width][in_width].
 *
 * In the backward functions a gradient named d_x is overwritten, one named add_x is added to.
 */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include "real.h"

/* out = in · weightᵀ + bias. bias may be NULL. */
void linear_forward(real *out, const real *in, const real *weight, const real *bias, int rows,
                    int in_width, int out_width);
/* d_bias may be NULL. */
void linear_backward(real *d_in, real *d_weight, real *d_bias, const real *d_out, const real *in,
                     const real *weight, int rows, int in_width, int out_width);

/* out = (in − mean) · inverse_deviation · gain + bias, over each row; keeps what backward needs. */
void layer_norm_forward(real *out, real *mean, real *inverse_deviation, const real *in,
                        const real *gain, const real *bias, int rows, int width);
/* The gradient of the input is added, because a residual connection runs beside the layer. */
void layer_norm_backward(real *add_in, real *d_gain, real *d_bias, const real *d_out,
                         const real *in, const real *mean, const real *inverse_deviation,
                         const real *gain, int rows, int width);

/* GELU in its tanh form. */
void gelu_forward(real *out, const real *in, long count);
void gelu_backward(real *d_in, const real *d_out, const real *in, long count);

/* out[row] = token_table[tokens[row]] + position_table[row % length] */
void embedding_forward(real *out, const int *tokens, const real *token_table,
                       const real *position_table, int rows, int length, int width);
void embedding_backward(real *add_token_table, real *add_position_table, const real *d_out,
                        const int *tokens, int rows, int length, int width);

/* Mean of −log softmax(logits)[target] in nats; d_logits is the gradient of that mean. */
double cross_entropy(real *d_logits, const real *logits, const int *targets, int rows, int vocab);

/* Causal self-attention of all heads. qkv: [rows][3 · width] (queries, keys, values side by side);
 * probability: [sequences][heads][length][length], kept for backward; out: [rows][width]. */
void attention_forward(real *out, real *probability, const real *qkv, int sequences, int length,
                       int width, int heads);
/* scratch: length · length numbers. */
void attention_backward(real *d_qkv, real *scratch, const real *d_out, const real *probability,
                        const real *qkv, int sequences, int length, int width, int heads);

#endif
