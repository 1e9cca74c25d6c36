/* SPDX-License-Identifier: Apache-2.0
 * Saving the whole training now and then, and going on from there: after a crash, or another day,
 * on any number of ranks.
 */
#ifndef GPT_CHECKPOINTS_H
#define GPT_CHECKPOINTS_H

#include <stdint.h>

#include "outrigger.h"
#include "progress.h"

/* Goes on from the latest checkpoint in the folder; the counts ride along in it. 0 if there is
 * none: the training begins. Collective. */
int checkpoint_load(otr_engine *engine, const char *folder, counts *out);

/* The last two stay. Collective. */
void checkpoint_save(otr_engine *engine, const char *folder, const counts *at);

#endif
