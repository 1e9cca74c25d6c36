/* SPDX-License-Identifier: Apache-2.0
 * What one sees of a run: a progress bar on a terminal (a line now and then elsewhere), and a CSV
 * file.
 */
#ifndef GPT_PROGRESS_H
#define GPT_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include "outrigger.h"

typedef struct progress {
  const char *name;
  int64_t steps, step;
  int64_t tokens; /* so far, over all ranks */
  FILE *csv;      /* NULL: none */
  int terminal;
  double begin, shown;   /* seconds on a monotonic clock */
  double loss, held_out; /* smoothed over about 20 steps; the last known, or −1 */
  double seconds_for_steps;
  int64_t updates, vanished; /* sums of the step reports */
} progress;

double seconds_now(void);

/* csv_path may be NULL. Only one rank has a progress. */
void progress_begin(progress *p, const char *name, int64_t steps, const char *csv_path);

/* held_out below 0: not evaluated at this step. tokens: so far. seconds: of this step, without
 * evaluation. */
void progress_step(progress *p, double loss, double held_out, int64_t tokens, double seconds,
                   const otr_step_report *report);
void progress_end(progress *p);

#endif
