/* SPDX-License-Identifier: Apache-2.0
 * A second implementation of the model's weights.h, in plain float64 arrays, so that the gradient
 * check sees the arithmetic of the model alone. It counts what the model asks for.
 */
#ifndef OTR_TESTS_WEIGHTS_FLOAT64_H
#define OTR_TESTS_WEIGHTS_FLOAT64_H

#include "weights.h"

typedef struct stored_parameter {
  char name[64];
  int64_t elements;
  int32_t contributions; /* as declared */
  real *value, *gradient;
  int acquired;    /* acquires without a release */
  int handed_over; /* gradients since the last weights_clear */
  int places;      /* handed out and not handed over */
} stored_parameter;

int64_t weights_count(const weight_store* w);
stored_parameter* weights_at(weight_store* w, int64_t id);
void weights_clear(weight_store* w); /* gradients to zero */

#endif
