/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"

#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#include "../gpt/check.h"

/* Eight sums side by side, which a compiler turns into vectors. */
static real dot(const real *a, const real *b, int64_t count) {
  const int64_t whole = count / 8 * 8;
  real sums[8] = {0}, sum = 0;
  for (int64_t i = 0; i < whole; i += 8) {
    for (int j = 0; j < 8; j++) sums[j] += a[i + j] * b[i + j];
  }
  for (int64_t i = whole; i < count; i++) sum += a[i] * b[i];
  for (int j = 0; j < 8; j++) sum += sums[j];
  return sum;
}

/* y += factor · x */
static void add(real *restrict y, real factor, const real *restrict x, int64_t count) {
  for (int64_t i = 0; i < count; i++) y[i] += factor * x[i];
}

void linear_forward(real *y, const real *x, const weights *w, int at, int64_t rows) {
  const int64_t in = w->shape[at][0], out = w->shape[at][1];
  for (int64_t r = 0; r < rows; r++) {
    memcpy(y + r * out, w->value[at + 1], (size_t)out * sizeof(real));
    for (int64_t i = 0; i < in; i++) {
      add(y + r * out, x[r * in + i], w->value[at] + i * out, out);
    }
  }
}

void linear_backward(real *add_x, const real *dy, const real *x, weights *w, int at, int64_t rows) {
  const int64_t in = w->shape[at][0], out = w->shape[at][1];
  for (int64_t r = 0; r < rows; r++) {
    const real *row = dy + r * out;
    add(w->grad[at + 1], 1, row, out);
    for (int64_t i = 0; i < in; i++) {
      add(w->grad[at] + i * out, x[r * in + i], row, out);
      if (add_x != NULL) add_x[r * in + i] += dot(w->value[at] + i * out, row, out);
    }
  }
}

norm norm_create(pool *p, int64_t rows) {
  const norm n = {pool_take(p, rows * WIDTH), pool_take(p, rows)};
  return n;
}

norm norm_from(norm n, int64_t row) {
  n.normal += row * WIDTH;
  n.inverse += row;
  return n;
}

void norm_forward(norm n, real *y, const real *x, const weights *w, int at, int64_t rows) {
  const real epsilon = (real)1e-5;
  for (int64_t r = 0; r < rows; r++, x += WIDTH, y += WIDTH) {
    real mean = 0, squares = 0;
    for (int i = 0; i < WIDTH; i++) mean += x[i];
    mean /= (real)WIDTH;
    for (int i = 0; i < WIDTH; i++) squares += (x[i] - mean) * (x[i] - mean);
    n.inverse[r] = 1 / sqrt(squares / (real)WIDTH + epsilon);
    for (int i = 0; i < WIDTH; i++) {
      const real normal = (x[i] - mean) * n.inverse[r];
      n.normal[r * WIDTH + i] = normal;
      y[i] = normal * w->value[at][i] + w->value[at + 1][i];
    }
  }
}

/* With g = dy · gain: dx = (g - mean(g) - normal · mean(g · normal)) / deviation. */
void norm_backward(norm n, real *add_x, const real *dy, weights *w, int at, int64_t rows) {
  for (int64_t r = 0; r < rows; r++, add_x += WIDTH, dy += WIDTH) {
    const real *normal = n.normal + r * WIDTH;
    real mean = 0, along = 0;
    for (int i = 0; i < WIDTH; i++) {
      const real g = dy[i] * w->value[at][i];
      mean += g / (real)WIDTH;
      along += g * normal[i] / (real)WIDTH;
      w->grad[at][i] += dy[i] * normal[i];
      w->grad[at + 1][i] += dy[i];
    }
    for (int i = 0; i < WIDTH; i++) {
      add_x[i] += (dy[i] * w->value[at][i] - mean - normal[i] * along) * n.inverse[r];
    }
  }
}

static void add_rows(real *x, const real *more, int64_t rows) { add(x, 1, more, rows * WIDTH); }

feed feed_create(pool *p, int64_t rows) {
  const feed f = {norm_create(p, rows), pool_take(p, rows * WIDTH), pool_take(p, rows * WIDE),
                  pool_take(p, rows * WIDE)};
  return f;
}

/* gelu(x) = x · Φ(x), with the normal distribution's Φ. */
static real phi(real x) { return (real)0.5 * (1 + erf(x * (real)0.7071067811865476)); }

void feed_forward(const feed *f, real *x, const weights *w, int at, int64_t rows) {
  norm_forward(f->before, f->normed, x, w, at, rows);
  linear_forward(f->wide, f->normed, w, at + 2, rows);
  for (int64_t i = 0; i < rows * WIDE; i++) f->active[i] = f->wide[i] * phi(f->wide[i]);
  real *out = allocate(rows * WIDTH, sizeof(real));
  linear_forward(out, f->active, w, at + 4, rows);
  add_rows(x, out, rows);
  free(out);
}

void feed_backward(const feed *f, real *dx, weights *w, int at, int64_t rows) {
  real *d_wide = allocate(rows * WIDE, sizeof(real));
  real *d_normed = allocate(rows * WIDTH, sizeof(real));
  linear_backward(d_wide, dx, f->active, w, at + 4, rows);
  for (int64_t i = 0; i < rows * WIDE; i++) {
    const real x = f->wide[i], density = (real)0.3989422804014327 * exp(-x * x / 2);
    d_wide[i] *= phi(x) + x * density;
  }
  linear_backward(d_normed, d_wide, f->normed, w, at + 2, rows);
  norm_backward(f->before, dx, d_normed, w, at, rows);
  free(d_normed);
  free(d_wide);
}

enum { HEAD = WIDTH / HEADS, KV = 2 * WIDTH };

attention attention_create(pool *p, int strips, int length, int seen, int is_causal) {
  const int64_t rows = (int64_t)strips * length, looks = (int64_t)strips * seen;
  const attention a = {strips,
                       length,
                       seen,
                       is_causal,
                       norm_create(p, rows),
                       pool_take(p, rows * WIDTH),
                       pool_take(p, rows * WIDTH),
                       pool_take(p, looks * KV),
                       pool_take(p, rows * seen * HEADS),
                       pool_take(p, rows * WIDTH)};
  return a;
}

/* How many rows the row `i` of a strip looks at. */
static int looks_at(const attention *a, int i) { return a->is_causal ? i + 1 : a->seen; }

/* mixed = softmax(queries · keys / √HEAD) · values, of one row and one head. */
static void look_forward(const attention *a, int strip, int i, int head) {
  const int64_t row = (int64_t)strip * a->length + i;
  const int count = looks_at(a, i);
  const real *query = a->queries + row * WIDTH + (int64_t)head * HEAD;
  const real *keys = a->keys_values + (int64_t)strip * a->seen * KV + (int64_t)head * HEAD;
  real *share = a->shares + (row * HEADS + head) * a->seen;
  real *mixed = a->mixed + row * WIDTH + (int64_t)head * HEAD;
  const real scale = 1 / sqrt((real)HEAD);
  real highest = 0, sum = 0;
  for (int j = 0; j < count; j++) {
    share[j] = scale * dot(query, keys + (int64_t)j * KV, HEAD);
    if (j == 0 || share[j] > highest) highest = share[j];
  }
  for (int j = 0; j < count; j++) sum += share[j] = exp(share[j] - highest);
  memset(mixed, 0, HEAD * sizeof(real));
  for (int j = 0; j < count; j++) {
    share[j] /= sum;
    add(mixed, share[j], keys + (int64_t)j * KV + WIDTH, HEAD);
  }
}

static void look_backward(const attention *a, int strip, int i, int head, const real *d_mixed,
                          real *d_queries, real *d_keys_values) {
  const int64_t row = (int64_t)strip * a->length + i, column = (int64_t)head * HEAD;
  const int64_t first = (int64_t)strip * a->seen * KV + column;
  const int count = looks_at(a, i);
  const real *share = a->shares + (row * HEADS + head) * a->seen;
  const real *d = d_mixed + row * WIDTH + column;
  const real scale = 1 / sqrt((real)HEAD);
  /* Σ over j of share · its gradient is mixed · d. */
  const real mean = dot(a->mixed + row * WIDTH + column, d, HEAD);
  for (int j = 0; j < count; j++) {
    const real *key = a->keys_values + first + (int64_t)j * KV;
    real *d_key = d_keys_values + first + (int64_t)j * KV;
    const real d_score = scale * share[j] * (dot(key + WIDTH, d, HEAD) - mean);
    add(d_key + WIDTH, share[j], d, HEAD);
    add(d_queries + row * WIDTH + column, d_score, key, HEAD);
    add(d_key, d_score, a->queries + row * WIDTH + column, HEAD);
  }
}

static const real *seen_by(const attention *a, int strip, const real *const *others) {
  return others != NULL ? others[strip] : a->normed + (int64_t)strip * a->seen * WIDTH;
}

void attention_forward(const attention *a, real *x, const real *const *others, const weights *w,
                       int at) {
  const int64_t rows = (int64_t)a->strips * a->length, looks = (int64_t)a->seen * KV;
  norm_forward(a->before, a->normed, x, w, at, rows);
  linear_forward(a->queries, a->normed, w, at + 2, rows);
  for (int s = 0; s < a->strips; s++) {
    linear_forward(a->keys_values + s * looks, seen_by(a, s, others), w, at + 4, a->seen);
    for (int i = 0; i < a->length; i++) {
      for (int head = 0; head < HEADS; head++) look_forward(a, s, i, head);
    }
  }
  real *out = allocate(rows * WIDTH, sizeof(real));
  linear_forward(out, a->mixed, w, at + 6, rows);
  add_rows(x, out, rows);
  free(out);
}

void attention_backward(const attention *a, real *dx, const real *const *others,
                        real *const *add_others, weights *w, int at) {
  const int64_t rows = (int64_t)a->strips * a->length, looks = (int64_t)a->seen * KV;
  real *d_mixed = allocate(rows * WIDTH, sizeof(real));
  real *d_queries = allocate(rows * WIDTH, sizeof(real));
  real *d_normed = allocate(rows * WIDTH, sizeof(real));
  real *d_keys_values = allocate(a->strips * looks, sizeof(real));
  linear_backward(d_mixed, dx, a->mixed, w, at + 6, rows);
  for (int s = 0; s < a->strips; s++) {
    for (int i = 0; i < a->length; i++) {
      for (int head = 0; head < HEADS; head++) {
        look_backward(a, s, i, head, d_mixed, d_queries, d_keys_values);
      }
    }
    real *add_seen = others != NULL ? add_others[s] : d_normed + (int64_t)s * a->seen * WIDTH;
    linear_backward(add_seen, d_keys_values + s * looks, seen_by(a, s, others), w, at + 4, a->seen);
  }
  linear_backward(d_normed, d_queries, a->normed, w, at + 2, rows);
  norm_backward(a->before, dx, d_normed, w, at, rows);
  free(d_keys_values);
  free(d_normed);
  free(d_queries);
  free(d_mixed);
}
