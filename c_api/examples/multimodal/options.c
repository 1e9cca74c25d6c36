/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdlib.h>

#include "../gpt/check.h"
#include "../gpt/command_line.h"

static const char purpose[] =
    "Trains a vision group and a language group of processes to read strips of digits out:\n"
    "  outrigger run -n 3 -- multimodal --vision-ranks 2 --vision-precision bf16\n"
    "  multimodal --colocated\n";

static void assign_kill(options *o) {
  char *end = NULL;
  o->kill_rank = strtol(o->kill, &end, 10);
  if (end != o->kill && *end == ':') o->kill_step = strtol(end + 1, &end, 10);
  if (*end != '\0' || o->kill_rank < 0 || o->kill_step < 1) {
    die("--kill: '%s' is not RANK:STEP, from 0:1 on", o->kill);
  }
}

static const char *const precisions[] = {"fp32", "bf16", "fp16", NULL};
static const char *const optimizers[] = {"AdamW", "SGD", NULL};

options options_parse(int argc, char **argv) {
  options o = {.vision = {0, 2, "bf16"},
               .language = {0, 1, "fp32"},
               .optimizer = "AdamW",
               .kill_rank = -1,
               .steps = 800,
               .micro_batches = 2,
               .ahead = 2,
               .strips = 16,
               .length = 4,
               .every = 100,
               .report = 100,
               .seed = 1,
               .lr = 5e-3,
               .clip = 1,
               .grad_scale = 1024,
               .timeout = 60};
  const option table[] = {
      {"vision-ranks", "processes of the vision group; 0: all others", .whole = &o.vision.ranks},
      {"language-ranks", "processes of the language group; 0: all others, or 1",
       .whole = &o.language.ranks},
      {"vision-stage", "ZeRO stage, 0 to 3", .whole = &o.vision.stage, .most = 3},
      {"language-stage", "ZeRO stage, 0 to 3", .whole = &o.language.stage, .most = 3},
      {"vision-precision", "fp32, bf16 or fp16", .text = &o.vision.precision, .legal = precisions},
      {"language-precision", "fp32, bf16 or fp16", .text = &o.language.precision,
       .legal = precisions},
      {"micro-batches", "of a step", .whole = &o.micro_batches, .least = 1},
      {"ahead", "micro-batches that the vision group may begin before it has the first gradient",
       .whole = &o.ahead, .least = 1, .most = MOST_AHEAD},
      {"strips", "of a micro-batch, on all ranks of a group together", .whole = &o.strips,
       .least = 1, .most = MOST_STRIPS},
      {"length", "digits of a strip", .whole = &o.length, .least = 1, .most = 64},
      {"steps", "updates", .whole = &o.steps},
      {"optimizer", "AdamW, or SGD at a constant rate", .text = &o.optimizer, .legal = optimizers},
      {"lr", "learning rate", .number = &o.lr},
      {"clip", "of the norm over both groups; 0: none", .number = &o.clip},
      {"grad-scale", "of the embedding's gradient on its way", .number = &o.grad_scale},
      {"digits", "file of scans; without it the program draws digits", .text = &o.digits},
      {"checkpoints", "folder to save to, and to go on from", .text = &o.checkpoints},
      {"every", "steps between two checkpoints", .whole = &o.every, .least = 1},
      {"save", "PREFIX of two files for the weights at the end", .text = &o.save},
      {"report", "steps between two lines", .whole = &o.report, .least = 1},
      {"require", "percent of the digits held out that it must read, else it fails",
       .number = &o.require},
      {"timeout", "seconds that a rank waits for another one", .number = &o.timeout, .least = 1},
      {"kill", "RANK:STEP: that process kills itself before that step, unless started again",
       .text = &o.kill},
      {"seed", "of weights and strips", .whole = &o.seed},
      {"colocated", "both models in each process, without messages", .flag = &o.colocated},
  };
  command_line_parse(purpose, table, sizeof table / sizeof table[0], argc, argv);
  if (o.kill != NULL) assign_kill(&o);
  if (o.grad_scale == 0) die("--grad-scale: 0; a gradient times 0 is lost");
  return o;
}

void options_share_ranks(options *o, int world) {
  if (o->colocated) {
    if (o->vision.ranks + o->language.ranks > 0) {
      die("--colocated has both models in each process; --vision-ranks and --language-ranks do not "
          "go with it");
    }
    o->vision.ranks = o->language.ranks = world;
  } else {
    if (o->language.ranks == 0)
      o->language.ranks = o->vision.ranks > 0 ? world - o->vision.ranks : 1;
    if (o->vision.ranks == 0) o->vision.ranks = world - o->language.ranks;
    if (world == 1) {
      die("1 process cannot be two groups: outrigger run -n 3 -- multimodal …, or --colocated");
    }
    if (o->vision.ranks < 1 || o->language.ranks < 1 ||
        o->vision.ranks + o->language.ranks != world) {
      die("%ld vision ranks and %ld language ranks are not %d processes", o->vision.ranks,
          o->language.ranks, world);
    }
  }
  if (o->strips < o->vision.ranks || o->strips < o->language.ranks) {
    die("%ld strips for %ld vision ranks and %ld language ranks: each has at least 1", o->strips,
        o->vision.ranks, o->language.ranks);
  }
}
