/* SPDX-License-Identifier: Apache-2.0
 * A small transformer that looks at strips of digits: their patches become an embedding. It knows
 * nothing of groups, ranks and messages.
 */
#ifndef MULTIMODAL_VISION_H
#define MULTIMODAL_VISION_H

#include "digits.h"
#include "layers.h"

/* The activations of one micro-batch. */
typedef struct vision {
  int strips, patches; /* patches of a strip */
  real *pixels;        /* [strips][patches][PATCH_PIXELS], which the caller fills */
  real *x;
  attention look;
  feed digest;
  norm after;
} vision;

void vision_declare(weights *w, int length, uint64_t seed);
vision vision_create(pool *p, int strips, int length);
/* embedding: of each strip, [patches][WIDTH]. */
void vision_forward(const vision *v, const weights *w, real *const *embedding);
void vision_backward(const vision *v, weights *w, const real *const *d_embedding);

#endif
