/* SPDX-License-Identifier: Apache-2.0
 * A training on one rank, and the two ways to make its steps: over two groups, or with both models
 * in each process.
 */
#ifndef MULTIMODAL_JOB_H
#define MULTIMODAL_JOB_H

#include "clock.h"
#include "language.h"
#include "mailbox.h"
#include "options.h"
#include "part.h"
#include "vision.h"
#include "wire.h"

typedef struct job {
  options o;
  digits digits;
  otr_context *context;
  otr_comm *world, *group; /* group: the ranks that have what this rank has */
  int rank, place;         /* in world, and in group */
  int has_vision, has_language;
  int first, strips; /* this rank's strips of a micro-batch */
  pool pool;

  part vision, language; /* those that this rank has */
  vision *looks;         /* activations of the micro-batches under way */
  language *reads;
  wire wire;
  /* Of each of this rank's strips, where its [patches][WIDTH] numbers are: */
  real *places[MOST_STRIPS];        /* those that it computes, embedding or gradient */
  real *grads[MOST_STRIPS];         /* the gradient, where both models are in this process */
  const real *parts[MOST_STRIPS];   /* those that it is given */
  const real *d_parts[MOST_STRIPS]; /* the scaled gradient that a vision backward begins with */
  real *d_scores;
  int *words, *read;

  double loss; /* of this rank's strips, since the last report, over so many micro-batches: */
  int64_t losses;
  long skipped;
  otr_step_report report;
  phase_clock clock;
} job;

/* One update of both models. */
void step_of_groups(job *j, int64_t step);
void step_colocated(job *j, int64_t step);

/* Reads micro-batch `number` of those that are held out, into j->read. */
void read_of_groups(job *j, int64_t number);
void read_colocated(job *j, int64_t number);

/* Saves both models, and goes on from there. Collective. */
void checkpoints_save(job *j, int64_t step);
int64_t checkpoints_load(job *j); /* the step; 0: there is none */

/* What is told, by rank 0. Collective. */
void report_step(job *j, int64_t step);
void report_times(job *j, int64_t steps, double seconds);
double report_accuracy(job *j); /* percent */

/* Shared by both ways. number: of the micro-batch since the training began. */
void take_strips(job *j, int64_t number, int is_held_out, vision *look);
void take_words(job *j, int64_t number, int is_held_out);
/* This rank's part of a micro-batch, and the factor with which the mean over ranks, which the
 * engine takes, is the mean over strips. */
double part_of_strips(const job *j);
double factor_of_mean(const job *j);

#endif
