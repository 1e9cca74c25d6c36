/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoints.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

static const char kPart[] = "gpt";

int checkpoint_load(otr_engine *engine, const char *folder, counts *out) {
  otr_checkpoint *latest = NULL;
  size_t bytes = sizeof *out;
  const int32_t status = otr_checkpoint_open(folder, NULL, &latest);
  if (status == OTR_E_NOT_FOUND) return 0;
  check_status(status, "otr_checkpoint_open");
  /* Rank 0's, whatever ranks there were and are. */
  TRY(otr_checkpoint_part(latest, 0, kPart, out, &bytes));
  otr_checkpoint_destroy(latest);
  if (bytes != sizeof *out)
    die("the checkpoint in %s is of another version of this program", folder);
  TRY(otr_engine_load(engine, folder, NULL, NULL));
  return 1;
}

void checkpoint_save(otr_engine *engine, const char *folder, const counts *at) {
  char tag[32];
  otr_save_options options;
  const otr_part part = {kPart, at, sizeof *at};
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    die("cannot make %s: %s", folder, strerror(errno));
  TRY(otr_save_options_init(&options, sizeof options));
  options.keep_last = 2;
  options.replace = 1;
  options.parts = &part;
  options.part_count = 1;
  snprintf(tag, sizeof tag, "step%lld", (long long)at->step);
  TRY(otr_engine_save(engine, folder, tag, &options));
}
