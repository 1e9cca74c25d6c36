/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include "model.h"
#include "text.h"

/* Writes `count` characters of the model's own and a final NUL. Every rank calls it and gets the
 * same text: acquiring sharded weights may need all ranks. */
void sample_text(gpt *model, const text *t, uint64_t seed, double temperature, int count,
                 char *out);

#endif
