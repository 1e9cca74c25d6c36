/* SPDX-License-Identifier: Apache-2.0 */
#include "vision.h"

#include <stdlib.h>

#include "../gpt/check.h"

enum {
  PATCH = 0,
  PLACE = PATCH + 2,
  LOOK = PLACE + 1,
  FEED = LOOK + ATTENTION_WEIGHTS,
  AFTER = FEED + FEED_WEIGHTS
};

void vision_declare(weights *w, int length, uint64_t seed) {
  weights_add_linear(w, "patch.matrix", "patch.bias", PATCH_PIXELS, WIDTH, seed);
  weights_add(w, "place", length * PATCHES_OF_DIGIT, WIDTH, 0, 0.1, seed);
  weights_add_norm(w, "look.norm.gain", "look.norm.bias", WIDTH);
  weights_add_linear(w, "look.queries.matrix", "look.queries.bias", WIDTH, WIDTH, seed);
  weights_add_linear(w, "look.keys_values.matrix", "look.keys_values.bias", WIDTH, 2 * WIDTH, seed);
  weights_add_linear(w, "look.out.matrix", "look.out.bias", WIDTH, WIDTH, seed);
  weights_add_norm(w, "feed.norm.gain", "feed.norm.bias", WIDTH);
  weights_add_linear(w, "feed.in.matrix", "feed.in.bias", WIDTH, WIDE, seed);
  weights_add_linear(w, "feed.out.matrix", "feed.out.bias", WIDE, WIDTH, seed);
  weights_add_norm(w, "after.gain", "after.bias", WIDTH);
}

vision vision_create(pool *p, int strips, int length) {
  const int patches = length * PATCHES_OF_DIGIT;
  const int64_t rows = (int64_t)strips * patches;
  const vision v = {strips,
                    patches,
                    pool_take(p, rows * PATCH_PIXELS),
                    pool_take(p, rows * WIDTH),
                    attention_create(p, strips, patches, patches, 0),
                    feed_create(p, rows),
                    norm_create(p, rows)};
  return v;
}

void vision_forward(const vision *v, const weights *w, real *const *embedding) {
  const int64_t rows = (int64_t)v->strips * v->patches, in_strip = (int64_t)v->patches * WIDTH;
  linear_forward(v->x, v->pixels, w, PATCH, rows);
  for (int64_t i = 0; i < rows * WIDTH; i++) v->x[i] += w->value[PLACE][i % in_strip];
  attention_forward(&v->look, v->x, NULL, w, LOOK);
  feed_forward(&v->digest, v->x, w, FEED, rows);
  for (int s = 0; s < v->strips; s++) {
    norm_forward(norm_from(v->after, (int64_t)s * v->patches), embedding[s], v->x + s * in_strip, w,
                 AFTER, v->patches);
  }
}

void vision_backward(const vision *v, weights *w, const real *const *d_embedding) {
  const int64_t rows = (int64_t)v->strips * v->patches, in_strip = (int64_t)v->patches * WIDTH;
  real *dx = allocate(rows * WIDTH, sizeof(real));
  for (int s = 0; s < v->strips; s++) {
    norm_backward(norm_from(v->after, (int64_t)s * v->patches), dx + s * in_strip, d_embedding[s],
                  w, AFTER, v->patches);
  }
  feed_backward(&v->digest, dx, w, FEED, rows);
  attention_backward(&v->look, dx, NULL, NULL, w, LOOK);
  for (int64_t i = 0; i < rows * WIDTH; i++) w->grad[PLACE][i % in_strip] += dx[i];
  linear_backward(NULL, dx, v->pixels, w, PATCH, rows);
  free(dx);
}
