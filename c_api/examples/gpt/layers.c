/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"

#include <string.h>

void linear_forward(real *out, const real *in, const real *weight, const real *bias, int rows,
                    int in_width, int out_width) {
  real keep = 0;
  if (bias != NULL) {
    for (int r = 0; r < rows; r++) {
      memcpy(out + (long)r * out_width, bias, (size_t)out_width * sizeof(real));
    }
    keep = 1;
  }
  real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out_width, in_width, 1, in, in_width,
            weight, in_width, keep, out, out_width);
}

void linear_backward(real *d_in, real *d_weight, real *d_bias, const real *d_out, const real *in,
                     const real *weight, int rows, int in_width, int out_width) {
  real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, in_width, out_width, 1, d_out,
            out_width, weight, in_width, 0, d_in, in_width);
  real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, out_width, in_width, rows, 1, d_out, out_width,
            in, in_width, 0, d_weight, in_width);
  if (d_bias == NULL) return;
  memset(d_bias, 0, (size_t)out_width * sizeof(real));
  for (int r = 0; r < rows; r++) {
    const real *row = d_out + (long)r * out_width;
    for (int o = 0; o < out_width; o++) d_bias[o] += row[o];
  }
}

void layer_norm_forward(real *out, real *mean, real *inverse_deviation, const real *in,
                        const real *gain, const real *bias, int rows, int width) {
  const real epsilon = (real)1e-5;
  for (int r = 0; r < rows; r++) {
    const real *x = in + (long)r * width;
    real *y = out + (long)r * width;
    real sum = 0, squares = 0;
    for (int i = 0; i < width; i++) sum += x[i];
    real m = sum / (real)width;
    for (int i = 0; i < width; i++) squares += (x[i] - m) * (x[i] - m);
    real scale = 1 / real_sqrt(squares / (real)width + epsilon);
    for (int i = 0; i < width; i++) y[i] = (x[i] - m) * scale * gain[i] + bias[i];
    mean[r] = m;
    inverse_deviation[r] = scale;
  }
}

/* With n = (x − mean) · scale and g = d_out · gain:
 * d_x = scale · (g − mean(g) − n · mean(g · n)). */
void layer_norm_backward(real *add_in, real *d_gain, real *d_bias, const real *d_out,
                         const real *in, const real *mean, const real *inverse_deviation,
                         const real *gain, int rows, int width) {
  memset(d_gain, 0, (size_t)width * sizeof(real));
  memset(d_bias, 0, (size_t)width * sizeof(real));
  for (int r = 0; r < rows; r++) {
    const real *x = in + (long)r * width;
    const real *dy = d_out + (long)r * width;
    real *dx = add_in + (long)r * width;
    real m = mean[r], scale = inverse_deviation[r];
    real sum_g = 0, sum_gn = 0;
    for (int i = 0; i < width; i++) {
      real n = (x[i] - m) * scale;
      real g = dy[i] * gain[i];
      sum_g += g;
      sum_gn += g * n;
      d_gain[i] += dy[i] * n;
      d_bias[i] += dy[i];
    }
    real mean_g = sum_g / (real)width, mean_gn = sum_gn / (real)width;
    for (int i = 0; i < width; i++) {
      real n = (x[i] - m) * scale;
      dx[i] += scale * (dy[i] * gain[i] - mean_g - n * mean_gn);
    }
  }
}

/* ½ (1 + tanh u) is the logistic function of 2u, which needs one exponential only. */
static const real gelu_scale = (real)1.5957691216057308; /* 2 · sqrt(2 / π) */
static const real gelu_cubic = (real)0.044715;

void gelu_forward(real *out, const real *in, long count) {
  for (long i = 0; i < count; i++) {
    real x = in[i];
    real u = gelu_scale * (x + gelu_cubic * x * x * x);
    out[i] = x / (1 + real_exp(-u));
  }
}

void gelu_backward(real *d_in, const real *d_out, const real *in, long count) {
  for (long i = 0; i < count; i++) {
    real x = in[i];
    real u = gelu_scale * (x + gelu_cubic * x * x * x);
    real s = 1 / (1 + real_exp(-u));
    real du = gelu_scale * (1 + 3 * gelu_cubic * x * x);
    d_in[i] = d_out[i] * (s + x * s * (1 - s) * du);
  }
}

void embedding_forward(real *out, const int *tokens, const real *token_table,
                       const real *position_table, int rows, int length, int width) {
  for (int r = 0; r < rows; r++) {
    const real *token = token_table + (long)tokens[r] * width;
    const real *position = position_table + (long)(r % length) * width;
    real *row = out + (long)r * width;
    for (int i = 0; i < width; i++) row[i] = token[i] + position[i];
  }
}

void embedding_backward(real *add_token_table, real *add_position_table, const real *d_out,
                        const int *tokens, int rows, int length, int width) {
  for (int r = 0; r < rows; r++) {
    real *token = add_token_table + (long)tokens[r] * width;
    real *position = add_position_table + (long)(r % length) * width;
    const real *row = d_out + (long)r * width;
    for (int i = 0; i < width; i++) token[i] += row[i];
    for (int i = 0; i < width; i++) position[i] += row[i];
  }
}

double cross_entropy(real *d_logits, const real *logits, const int *targets, int rows, int vocab) {
  double loss = 0;
  real share = 1 / (real)rows;
  for (int r = 0; r < rows; r++) {
    const real *row = logits + (long)r * vocab;
    real *d_row = d_logits + (long)r * vocab;
    real highest = row[0];
    for (int v = 1; v < vocab; v++) highest = row[v] > highest ? row[v] : highest;
    real sum = 0;
    for (int v = 0; v < vocab; v++) {
      d_row[v] = real_exp(row[v] - highest);
      sum += d_row[v];
    }
    loss += log((double)sum) + (double)highest - (double)row[targets[r]];
    for (int v = 0; v < vocab; v++) d_row[v] *= share / sum;
    d_row[targets[r]] -= share;
  }
  return loss / rows;
}
