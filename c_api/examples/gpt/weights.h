/* SPDX-License-Identifier: Apache-2.0
 * Where the model's arithmetic meets Outrigger: weights come from the engine, gradients go to it.
 *
 * The model multiplies in float32. Under ZeRO-3 with bfloat16 compute the engine keeps slices of
 * bfloat16 weights on each rank; acquire widens just the layer in use, and release frees it again.
 */
#ifndef GPT_WEIGHTS_H
#define GPT_WEIGHTS_H

#include <stdint.h>

#include "outrigger.h"
#include "real.h"

typedef struct weight_store weight_store;

weight_store *weights_create(otr_engine *engine);
void weights_destroy(weight_store *w);

/* Declares a parameter of columns > 0 ? [rows][columns] : [rows] numbers, before the engine's
 * commit. contributions: how many gradients one backward pass will hand over for it. Returns its
 * id. */
int64_t weights_declare(weight_store *w, const char *name, const real *initial, int64_t rows,
                        int64_t columns, int32_t contributions);
int64_t weights_total(const weight_store *w); /* elements declared */
void weights_ready(weight_store *w);          /* call once, after the commit */

/* All master weights in the order of declaration, as plain float32: how a model goes on with
 * another text or another precision. Collective, after the commit; rank 0 touches the file. */
void weights_load(weight_store *w, const char *path, int32_t rank);
void weights_save(weight_store *w, const char *path, int32_t rank);

/* values[i] is readable until the matching release. */
void weights_acquire(weight_store *w, const int64_t *ids, int count, const real **values);
void weights_release(weight_store *w, const int64_t *ids, int count);

/* An uninitialised place for the gradient of a parameter, and its hand-over, which ends the place.
 */
real *gradient_place(weight_store *w, otr_pass *pass, int64_t id);
void gradient_hand_over(weight_store *w, otr_pass *pass, int64_t id, real *place);

#endif
