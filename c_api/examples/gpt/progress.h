/* SPDX-License-Identifier: Apache-2.0
 * What one sees of a run: a progress bar on a terminal (a line now and then elsewhere), and a CSV
 * file.
 */
#ifndef GPT_PROGRESS_H
#define GPT_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include "outrigger.h"

/* What a later process needs to go on: all that is not the engine's. Equal on all ranks but for
 * what rank 0 alone sees. */
typedef struct counts {
  int64_t step, passes;      /* the next ones' numbers, which rate and data follow from */
  int64_t tokens;            /* over all ranks */
  int64_t updates, vanished; /* sums of the step reports */
  int64_t csv_bytes;
  double loss, held_out; /* smoothed over about 20 steps; the last known, or −1 */
  double seconds_for_steps;
} counts;

typedef struct progress {
  const char *name;
  int64_t steps;
  int64_t first; /* of the steps, where this process began */
  counts now;
  FILE *csv; /* NULL: none */
  int terminal;
  double begin, shown; /* seconds on a monotonic clock */
} progress;

double seconds_now(void);

/* p: all 0, or with the counts of a run that goes on, whose rows behind its last checkpoint are cut
 * off. csv_path may be NULL. Only one rank shows a progress. */
void progress_begin(progress *p, const char *name, int64_t steps, const char *csv_path);

/* After p->now.step has counted it. held_out below 0: not evaluated at this step. tokens: so far.
 * seconds: of this step, without evaluation. */
void progress_step(progress *p, double loss, double held_out, int64_t tokens, double seconds,
                   const otr_step_report *report);
void progress_flush(progress *p); /* before p->now is kept for a later process */
void progress_end(progress *p);

#endif
