/* SPDX-License-Identifier: Apache-2.0
 * What both models are made of. `at` is the number of a layer's first weight. A backward adds to
 * the gradients of its weights, and where its argument is called add_… to that, too.
 */
#ifndef MULTIMODAL_LAYERS_H
#define MULTIMODAL_LAYERS_H

#include "weights.h"

enum { WIDTH = 32, HEADS = 2, WIDE = 2 * WIDTH };

/* y = x · matrix + bias; rows of x and y. Two weights. */
void linear_forward(real *y, const real *x, const weights *w, int at, int64_t rows);
/* add_x may be NULL. */
void linear_backward(real *add_x, const real *dy, const real *x, weights *w, int at, int64_t rows);

/* A layer norm over rows of WIDTH; what its backward needs. Two weights. */
typedef struct norm {
  real *normal;  /* [rows][WIDTH]: (x - mean) / deviation */
  real *inverse; /* [rows]: 1 / deviation */
} norm;

norm norm_create(pool *p, int64_t rows);
norm norm_from(norm n, int64_t row); /* of the rows from `row` on */
void norm_forward(norm n, real *y, const real *x, const weights *w, int at, int64_t rows);
void norm_backward(norm n, real *add_x, const real *dy, weights *w, int at, int64_t rows);

/* x + linear(gelu(linear(norm(x)))), in place. Weights: norm, linear, linear. */
enum { FEED_WEIGHTS = 6 };
typedef struct feed {
  norm before;
  real *normed, *wide, *active;
} feed;

feed feed_create(pool *p, int64_t rows);
void feed_forward(const feed *f, real *x, const weights *w, int at, int64_t rows);
/* dx: in, of what came out; out, of what went in. */
void feed_backward(const feed *f, real *dx, weights *w, int at, int64_t rows);

/* x + linear(attention(norm(x) → seen)), in place; over `strips` strips, each with `length` rows of
 * x and `seen` rows to look at. Weights: norm, queries, keys and values, out. */
enum { ATTENTION_WEIGHTS = 8 };
typedef struct attention {
  int strips, length, seen;
  int is_causal;
  norm before;
  real *normed, *queries, *keys_values, *shares, *mixed;
} attention;

attention attention_create(pool *p, int strips, int length, int seen, int is_causal);
/* others: of each strip the rows to look at, [seen][WIDTH]; NULL: norm(x). */
void attention_forward(const attention *a, real *x, const real *const *others, const weights *w,
                       int at);
void attention_backward(const attention *a, real *dx, const real *const *others,
                        real *const *add_others, weights *w, int at);

#endif
