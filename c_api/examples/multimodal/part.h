/* SPDX-License-Identifier: Apache-2.0
 * One of the two models and its engine: where the arithmetic meets Outrigger.
 */
#ifndef MULTIMODAL_PART_H
#define MULTIMODAL_PART_H

#include "options.h"
#include "outrigger.h"
#include "weights.h"

typedef struct part {
  const char *name; /* "vision" or "language" */
  weights weights;
  otr_engine *engine;
  int64_t ids[MOST_WEIGHTS];
} part;

/* Engine and parameters, over the ranks of `group`. Collective there. weights: declared already. */
void part_create(part *p, const options *o, const part_options *of, otr_comm *group);
void part_destroy(part *p);

/* Makes the values readable, as float32, until the step that ends the window. */
void part_acquire(part *p);

/* A pass from these gradients of outputs. tag: of gradients that come from elsewhere, or NULL. */
otr_pass *part_begin_pass(part *p, const otr_tensor *grads, int64_t count,
                          const otr_call_info *tag);
/* An output's gradient, scaled: what the backward begins with. */
const real *part_output_grad(otr_pass *pass, int64_t which);
/* Hands over what the backward has added up. */
void part_end_pass(part *p, otr_pass *pass);

/* Ends a micro-batch that is not its step's last. */
void part_accumulate(part *p);

/* Writes all master weights to a file: a message, which is a safetensors file. Collective; rank 0
 * of the group writes. */
void part_save_weights(part *p, otr_comm *group, const char *prefix);

#endif
