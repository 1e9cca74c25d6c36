/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPT_SUMMARY_H
#define GPT_SUMMARY_H

#include <stdint.h>

#include "outrigger.h"

enum { SUMMARY_MAX_PURPOSES = 64 };

/* The engine's memory ledger, summed over ranks. */
typedef struct memory_use {
  size_t count; /* the last entry is the total */
  const char *purpose[SUMMARY_MAX_PURPOSES];
  double resident[SUMMARY_MAX_PURPOSES], peak[SUMMARY_MAX_PURPOSES]; /* bytes */
} memory_use;

/* Collective. */
memory_use memory_over_ranks(otr_comm *comm, const otr_engine *engine);

typedef struct summary {
  const char *name;
  int32_t world;
  int64_t parameters, steps, tokens, held_out_characters;
  double held_out, bigram; /* nats per character */
  double seconds_per_step;
  int64_t updates, vanished;
  memory_use memory;
  const char *sample;
} summary;

void summary_print(const summary *s);
void summary_write(const summary *s, const char *path); /* JSON */

#endif
