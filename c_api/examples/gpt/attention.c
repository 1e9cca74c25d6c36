/* SPDX-License-Identifier: Apache-2.0
 * Causal self-attention. Each head of each sequence is three small matrix products on slices of the
 * packed queries, keys and values; the row stride 3 · width lets BLAS read the slices in place.
 */
#include "layers.h"

/* The slices of one head of one sequence. */
typedef struct head_view {
  long query, key, value; /* offsets into [rows][3 · width] */
  long out;               /* offset into [rows][width] */
  long probability;       /* offset into [sequences][heads][length][length] */
} head_view;

static head_view view_of(int sequence, int head, int length, int width, int heads) {
  long size = width / heads;
  long first_row = (long)sequence * length;
  head_view view;
  view.query = first_row * 3 * width + head * size;
  view.key = view.query + width;
  view.value = view.key + width;
  view.out = first_row * width + head * size;
  view.probability = ((long)sequence * heads + head) * length * length;
  return view;
}

/* Row t of scores becomes the probabilities of the positions 0 to t, and 0 beyond. */
static void causal_softmax(real *scores, int length) {
  for (int t = 0; t < length; t++) {
    real *row = scores + (long)t * length;
    real highest = row[0], sum = 0;
    for (int s = 1; s <= t; s++) highest = row[s] > highest ? row[s] : highest;
    for (int s = 0; s <= t; s++) {
      row[s] = real_exp(row[s] - highest);
      sum += row[s];
    }
    for (int s = 0; s <= t; s++) row[s] /= sum;
    for (int s = t + 1; s < length; s++) row[s] = 0;
  }
}

/* d_probability becomes the gradient of the scores: p · (d − Σ d · p), row by row. */
static void causal_softmax_backward(real *d_probability, const real *probability, int length) {
  for (int t = 0; t < length; t++) {
    real *d = d_probability + (long)t * length;
    const real *p = probability + (long)t * length;
    real dot = 0;
    for (int s = 0; s <= t; s++) dot += d[s] * p[s];
    for (int s = 0; s <= t; s++) d[s] = p[s] * (d[s] - dot);
    for (int s = t + 1; s < length; s++) d[s] = 0;
  }
}

void attention_forward(real *out, real *probability, const real *qkv, int sequences, int length,
                       int width, int heads) {
  int size = width / heads, stride = 3 * width;
  real scale = 1 / real_sqrt((real)size);
  for (int b = 0; b < sequences; b++) {
    for (int h = 0; h < heads; h++) {
      head_view v = view_of(b, h, length, width, heads);
      real *p = probability + v.probability;
      real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, length, length, size, scale, qkv + v.query,
                stride, qkv + v.key, stride, 0, p, length);
      causal_softmax(p, length);
      real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, length, size, length, 1, p, length,
                qkv + v.value, stride, 0, out + v.out, width);
    }
  }
}

void attention_backward(real *d_qkv, real *scratch, const real *d_out, const real *probability,
                        const real *qkv, int sequences, int length, int width, int heads) {
  int size = width / heads, stride = 3 * width;
  real scale = 1 / real_sqrt((real)size);
  for (int b = 0; b < sequences; b++) {
    for (int h = 0; h < heads; h++) {
      head_view v = view_of(b, h, length, width, heads);
      const real *p = probability + v.probability;
      real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, length, size, length, 1, p, length,
                d_out + v.out, width, 0, d_qkv + v.value, stride);
      real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, length, length, size, 1, d_out + v.out,
                width, qkv + v.value, stride, 0, scratch, length);
      causal_softmax_backward(scratch, p, length);
      real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, length, size, length, scale, scratch,
                length, qkv + v.key, stride, 0, d_qkv + v.query, stride);
      real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, length, size, length, scale, scratch,
                length, qkv + v.query, stride, 0, d_qkv + v.key, stride);
    }
  }
}
