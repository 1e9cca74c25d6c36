/* SPDX-License-Identifier: Apache-2.0
 * The values of one model and their gradients: what the arithmetic needs to know of them.
 */
#ifndef MULTIMODAL_WEIGHTS_H
#define MULTIMODAL_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

/* The number that the models compute in. The check of the gradients compiles them with double. */
#ifdef MULTIMODAL_FLOAT64
typedef double real;
#else
typedef float real;
#endif

enum { MOST_WEIGHTS = 32 };

typedef struct weights {
  int count;
  const char *name[MOST_WEIGHTS];
  int64_t shape[MOST_WEIGHTS][2];  /* rows, columns; a vector has one row */
  real *initial[MOST_WEIGHTS];     /* NULL once an engine has them */
  const real *value[MOST_WEIGHTS]; /* what forward and backward read */
  real *grad[MOST_WEIGHTS];        /* what backward adds to */
} weights;

/* Adds one whose elements are `middle` and a normal random number times `spread`. The name is kept.
 */
void weights_add(weights *w, const char *name, int rows, int columns, double middle, double spread,
                 uint64_t seed);
/* Two: a matrix [in, out] for x · matrix, and a bias. Names: that of the matrix, that of the bias.
 */
void weights_add_linear(weights *w, const char *matrix, const char *bias, int in, int out,
                        uint64_t seed);
/* Two: gain and bias of a layer norm. */
void weights_add_norm(weights *w, const char *gain, const char *bias, int width);

int64_t weights_elements(const weights *w, int which);
void weights_clear_grads(weights *w);
void weights_destroy(weights *w);

/* Memory that is given back at once. */
typedef struct pool {
  struct pool_block *last;
} pool;

real *pool_take(pool *p, int64_t count); /* zeros */
void pool_destroy(pool *p);

#endif
