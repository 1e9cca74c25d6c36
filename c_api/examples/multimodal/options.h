/* SPDX-License-Identifier: Apache-2.0
 * What a training is: the same on all ranks of both groups.
 */
#ifndef MULTIMODAL_OPTIONS_H
#define MULTIMODAL_OPTIONS_H

enum { MOST_STRIPS = 1024, MOST_AHEAD = 64 };

/* One group: how many ranks it has, and how its engine keeps what they train. */
typedef struct part_options {
  long ranks; /* 0: those that the other group leaves */
  long stage;
  const char *precision; /* fp32, bf16 or fp16 */
} part_options;

typedef struct options {
  part_options vision, language;
  const char *digits, *checkpoints, *save, *kill, *optimizer;
  long kill_rank, kill_step; /* of --kill; -1: nobody */
  long steps, micro_batches, ahead, strips, length, every, report, seed;
  double lr, clip, grad_scale, timeout, require;
  int colocated; /* both models in each process */
} options;

/* Ends the program after --help, and with a message if an option is not legal. */
options options_parse(int argc, char **argv);

/* Decides both groups' numbers of ranks, for `world` processes. */
void options_share_ranks(options *o, int world);

#endif
