/* SPDX-License-Identifier: Apache-2.0 */
#include "weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../gpt/check.h"
#include "../gpt/random.h"

void weights_add(weights *w, const char *name, int rows, int columns, double middle, double spread,
                 uint64_t seed) {
  if (w->count == MOST_WEIGHTS) die("more than %d weights", MOST_WEIGHTS);
  const int at = w->count++;
  const int64_t elements = (int64_t)rows * columns;
  random_stream stream = random_start(seed, 0, (uint64_t)at);
  w->name[at] = name;
  w->shape[at][0] = rows;
  w->shape[at][1] = columns;
  w->initial[at] = allocate(elements, sizeof(real));
  w->grad[at] = allocate(elements, sizeof(real));
  w->value[at] = w->initial[at];
  for (int64_t i = 0; i < elements; i++) {
    w->initial[at][i] = (real)(middle + (spread > 0 ? spread * random_normal(&stream) : 0));
  }
}

void weights_add_linear(weights *w, const char *matrix, const char *bias, int in, int out,
                        uint64_t seed) {
  weights_add(w, matrix, in, out, 0, 1 / sqrt(in), seed);
  weights_add(w, bias, 1, out, 0, 0, seed);
}

void weights_add_norm(weights *w, const char *gain, const char *bias, int width) {
  weights_add(w, gain, 1, width, 1, 0, 0);
  weights_add(w, bias, 1, width, 0, 0, 0);
}

int64_t weights_elements(const weights *w, int which) {
  return w->shape[which][0] * w->shape[which][1];
}

void weights_clear_grads(weights *w) {
  for (int i = 0; i < w->count; i++) {
    memset(w->grad[i], 0, (size_t)weights_elements(w, i) * sizeof(real));
  }
}

void weights_destroy(weights *w) {
  for (int i = 0; i < w->count; i++) {
    free(w->initial[i]);
    free(w->grad[i]);
  }
}

typedef struct pool_block {
  struct pool_block *before;
  real values[];
} pool_block;

real *pool_take(pool *p, int64_t count) {
  pool_block *block = allocate((int64_t)sizeof *block + count * (int64_t)sizeof(real), 1);
  block->before = p->last;
  p->last = block;
  return block->values;
}

void pool_destroy(pool *p) {
  while (p->last != NULL) {
    pool_block *block = p->last;
    p->last = block->before;
    free(block);
  }
}
