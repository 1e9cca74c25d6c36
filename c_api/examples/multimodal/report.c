/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "../gpt/check.h"
#include "job.h"

void report_step(job *j, int64_t step) {
  double loss = j->loss;
  TRY(otr_comm_all_reduce_sum(j->world, &loss, 1));
  if (j->rank == 0) {
    printf("step %lld: loss %.6f, norm %.6f, clipped by %.4f, skipped %ld\n", (long long)step,
           loss / (double)j->losses, j->report.grad_norm, j->report.clip_coefficient, j->skipped);
    fflush(stdout);
  }
  j->loss = 0;
  j->losses = 0;
}

void report_times(job *j, int64_t steps, double seconds) {
  static const char *const names[PHASES] = {"forward", "backward", "transfer", "waiting", "step"};
  double *all = allocate((int64_t)PHASES * (j->o.vision.ranks + j->o.language.ranks), sizeof *all);
  TRY(otr_comm_all_gather(j->world, j->clock.seconds, sizeof j->clock.seconds, all));
  if (j->rank == 0 && steps > 0) {
    const long ranks = j->o.colocated ? j->o.vision.ranks : j->o.vision.ranks + j->o.language.ranks;
    printf("%lld steps in %.2f s: %.2f ms a step\n", (long long)steps, seconds,
           1e3 * seconds / (double)steps);
    for (long r = 0; r < ranks; r++) {
      const int is_vision = r < j->o.vision.ranks;
      if (j->o.colocated) {
        printf("  rank %ld, ms:", r);
      } else {
        printf("  %s rank %ld, ms:", is_vision ? "vision" : "language",
               is_vision ? r : r - j->o.vision.ranks);
      }
      for (int p = 0; p < PHASES; p++) {
        printf("%s %s %.2f", p == 0 ? "" : ",", names[p],
               1e3 * all[r * PHASES + p] / (double)steps);
      }
      printf("\n");
    }
  }
  free(all);
}

/* Each micro-batch ends with a collective call: then all its messages have been read. */
double report_accuracy(job *j) {
  enum { BATCHES = 16 };
  double right = 0;
  const int64_t digits = (int64_t)j->strips * j->o.length;
  if (j->has_vision) part_acquire(&j->vision);
  if (j->has_language) part_acquire(&j->language);
  for (int64_t number = 0; number < BATCHES; number++) {
    if (j->o.colocated) {
      read_colocated(j, number);
    } else {
      read_of_groups(j, number);
    }
    double same = 0;
    if (j->has_language) {
      take_words(j, number, 1);
      for (int64_t i = 0; i < digits; i++) same += j->read[i] == j->words[i];
    }
    TRY(otr_comm_all_reduce_sum(j->world, &same, 1));
    right += same;
  }
  const double percent = 100 * right / (double)(BATCHES * j->o.strips * j->o.length);
  if (j->rank == 0) {
    printf("of %ld digits that were held out it reads %.1f %% right\n",
           BATCHES * j->o.strips * j->o.length, percent);
  }
  return percent;
}
