/* SPDX-License-Identifier: Apache-2.0
 * Two groups of processes train one model: a vision group embeds strips of digits, a language group
 * reads them out and sends the gradient of the embedding back. Start here; a step is in groups.c.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpt/check.h"
#include "job.h"

/* Strips of a micro-batch by rank; the first ranks of a group may have one more. */
static int64_t *share_strips(long strips, long ranks) {
  int64_t *share = allocate(ranks, sizeof *share);
  for (long r = 0; r < ranks; r++) share[r] = strips / ranks + (r < strips % ranks);
  return share;
}

/* Warnings of the library; all ranks have the same ones. */
static void log_line(int32_t level, const char *line, void *user_data) {
  (void)level;
  if (((const job *)user_data)->rank == 0) fprintf(stderr, "outrigger: %s\n", line);
}

static void join(job *j) {
  otr_context_options context_options;
  otr_comm_options comm_options;
  int32_t rank = 0, world = 0, place = 0;
  TRY(otr_context_options_init(&context_options, sizeof context_options));
  context_options.log_callback = log_line;
  context_options.log_user_data = j;
  context_options.workers = 1;
  TRY(otr_context_create(&context_options, &j->context));
  TRY(otr_comm_options_init(&comm_options, sizeof comm_options));
  comm_options.timeout = j->o.timeout;
  TRY(otr_comm_from_env(j->context, &comm_options, &j->world)); /* RANK, WORLD_SIZE … */
  TRY(otr_comm_rank(j->world, &rank));
  TRY(otr_comm_size(j->world, &world));
  options_share_ranks(&j->o, world);
  const int is_colocated = j->o.colocated;
  j->rank = rank;
  j->has_vision = is_colocated || rank < j->o.vision.ranks;
  j->has_language = is_colocated || !j->has_vision;
  TRY(otr_comm_split(j->world, j->has_vision ? 0 : 1, rank, &j->group));
  TRY(otr_comm_rank(j->group, &place));
  j->place = place;
}

static void make_models(job *j) {
  const int length = (int)j->o.length;
  const uint64_t seed = (uint64_t)j->o.seed;
  j->looks = allocate(j->o.ahead, sizeof *j->looks);
  j->reads = allocate(1, sizeof *j->reads);
  if (j->has_vision) {
    j->vision.name = "vision";
    vision_declare(&j->vision.weights, length, 2 * seed);
    part_create(&j->vision, &j->o, &j->o.vision, j->group);
    for (long i = 0; i < j->o.ahead; i++) {
      j->looks[i] = vision_create(&j->pool, j->strips, length);
    }
  }
  if (j->has_language) {
    j->language.name = "language";
    language_declare(&j->language.weights, length, 2 * seed + 1);
    part_create(&j->language, &j->o, &j->o.language, j->group);
    *j->reads = language_create(&j->pool, j->strips, length);
    j->d_scores = pool_take(&j->pool, (int64_t)j->strips * (length + 1) * WORDS);
  }
}

static void make_wire(job *j) {
  const int patches = (int)j->o.length * PATCHES_OF_DIGIT;
  int64_t *vision = share_strips(j->o.strips, j->o.vision.ranks);
  int64_t *language = share_strips(j->o.strips, j->o.language.ranks);
  const int64_t *own = j->has_vision ? vision : language;
  for (int r = 0; r < j->place; r++) j->first += (int)own[r];
  j->strips = (int)own[j->place];
  j->words = allocate((int64_t)j->strips * j->o.length, sizeof *j->words);
  j->read = allocate((int64_t)j->strips * j->o.length, sizeof *j->read);
  if (j->o.colocated) {
    const int64_t in_strip = (int64_t)patches * WIDTH;
    j->places[0] = pool_take(&j->pool, j->strips * in_strip);
    j->grads[0] = pool_take(&j->pool, j->strips * in_strip);
    for (int s = 0; s < j->strips; s++) {
      j->places[s] = j->places[0] + s * in_strip;
      j->grads[s] = j->grads[0] + s * in_strip;
      j->parts[s] = j->places[s];
    }
  } else {
    mailbox *m = mailbox_open(j->world, (int)j->o.ahead, wire_bytes((int)j->o.strips, patches),
                              j->o.timeout);
    j->wire = wire_create(m, j->has_vision, j->place, vision, (int)j->o.vision.ranks, language,
                          (int)j->o.language.ranks, patches);
  }
  free(vision);
  free(language);
}

/* --kill, for tests of what a lost process does to the others. */
static void maybe_end(const job *j, int64_t step) {
  const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT"); /* outrigger run sets it */
  const int is_first = restarts == NULL || strcmp(restarts, "0") == 0;
  if (is_first && j->rank == j->o.kill_rank && step == j->o.kill_step) raise(SIGKILL);
}

static void train(job *j) {
  int64_t step = j->o.checkpoints != NULL ? checkpoints_load(j) : 0;
  if (step > 0 && j->rank == 0) printf("goes on from step %lld\n", (long long)step);
  const int64_t first = step;
  const double begin = seconds_now();
  clock_begin(&j->clock);
  while (step < j->o.steps) {
    maybe_end(j, step + 1);
    if (j->o.colocated) {
      step_colocated(j, step);
    } else {
      step_of_groups(j, step);
    }
    step++;
    j->losses += j->o.micro_batches;
    j->skipped += j->report.outcome == OTR_STEP_SKIPPED;
    if (step % j->o.report == 0 || step == j->o.steps) report_step(j, step);
    if (j->o.checkpoints != NULL && step % j->o.every == 0) checkpoints_save(j, step);
    j->clock.last = seconds_now();
  }
  report_times(j, step - first, seconds_now() - begin);
}

static void leave(job *j) {
  part_destroy(&j->vision);
  part_destroy(&j->language);
  if (j->has_language) language_destroy(j->reads);
  wire_destroy(&j->wire);
  mailbox_close(j->wire.mailbox);
  otr_comm_destroy(j->group);
  otr_comm_destroy(j->world);
  otr_context_destroy(j->context);
  digits_close(&j->digits);
  pool_destroy(&j->pool);
  free(j->looks), free(j->reads), free(j->words), free(j->read);
}

int main(int argc, char **argv) {
  static job j; /* a few pages of zeros */
  j.o = options_parse(argc, argv);
  j.digits = digits_open(j.o.digits, (uint64_t)j.o.seed);
  join(&j);
  make_wire(&j);
  make_models(&j);
  train(&j);
  const double percent = report_accuracy(&j);
  if (j.o.save != NULL) {
    if (j.has_vision) part_save_weights(&j.vision, j.group, j.o.save);
    if (j.has_language) part_save_weights(&j.language, j.group, j.o.save);
  }
  leave(&j);
  if (percent < j.o.require)
    die("it reads %.1f %%, and %.1f %% are required", percent, j.o.require);
  return EXIT_SUCCESS;
}
