/* SPDX-License-Identifier: Apache-2.0
 * Both groups save, the vision group last: its latest checkpoint is of a moment that is whole.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../gpt/check.h"
#include "job.h"

static const char kStep[] = "step";

static void make_folder(const char *path) {
  if (mkdir(path, 0777) != 0 && errno != EEXIST) die("cannot make %s: %s", path, strerror(errno));
}

static void folder_of(const job *j, const char *part, char *path, size_t room) {
  if (snprintf(path, room, "%s/%s", j->o.checkpoints, part) >= (int)room) {
    die("--checkpoints: the name is too long");
  }
}

static void save(const job *j, const part *p, int64_t step) {
  char path[4096], tag[32];
  const otr_part place = {kStep, &step, sizeof step};
  otr_save_options options;
  folder_of(j, p->name, path, sizeof path);
  make_folder(j->o.checkpoints);
  make_folder(path);
  TRY(otr_save_options_init(&options, sizeof options));
  options.keep_last = 2;
  options.replace = 1;
  options.parts = &place;
  options.part_count = 1;
  snprintf(tag, sizeof tag, "step%lld", (long long)step);
  TRY(otr_engine_save(p->engine, path, tag, &options));
}

void checkpoints_save(job *j, int64_t step) {
  if (j->has_language) save(j, &j->language, step);
  TRY(otr_comm_barrier(j->world));
  if (j->has_vision) save(j, &j->vision, step);
  TRY(otr_comm_barrier(j->world)); /* nobody is asked for a message while the other group writes */
}

/* The step of the vision group's latest checkpoint, by rank 0, which is a vision rank. */
static int64_t latest_step(const job *j) {
  char path[4096];
  int64_t step = 0;
  if (j->rank == 0) {
    otr_checkpoint *latest = NULL;
    size_t bytes = sizeof step;
    folder_of(j, "vision", path, sizeof path);
    const int32_t status = otr_checkpoint_open(path, NULL, &latest);
    if (status != OTR_E_NOT_FOUND) {
      check_status(status, "otr_checkpoint_open");
      TRY(otr_checkpoint_part(latest, 0, kStep, &step, &bytes));
      otr_checkpoint_destroy(latest);
    }
  }
  TRY(otr_comm_broadcast(j->world, &step, sizeof step, 0));
  return step;
}

static void load(const job *j, const part *p, int64_t step) {
  char path[4096], tag[32];
  folder_of(j, p->name, path, sizeof path);
  snprintf(tag, sizeof tag, "step%lld", (long long)step);
  TRY(otr_engine_load(p->engine, path, tag, NULL));
}

int64_t checkpoints_load(job *j) {
  const int64_t step = latest_step(j);
  if (step == 0) return 0;
  if (j->has_vision) load(j, &j->vision, step);
  if (j->has_language) load(j, &j->language, step);
  return step;
}
