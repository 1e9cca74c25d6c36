/* SPDX-License-Identifier: Apache-2.0
 * The command line of the training program.
 */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

typedef struct options {
  const char *text;        /* file to learn */
  const char *config;      /* JSON for otr_engine_create, or NULL */
  const char *csv;         /* one line per step, or NULL */
  const char *summary;     /* JSON at the end, or NULL */
  const char *load;        /* weights to begin with, or NULL */
  const char *save;        /* file for the weights at the end, or NULL */
  const char *checkpoints; /* folder to save the training to and to go on from, or NULL */
  const char *name;        /* what the progress bar calls the run */
  long layers, width, heads, context;
  long batch; /* sequences per rank and pass */
  long steps, warmup;
  double learning_rate;       /* at its highest, after the warm-up */
  double final_learning_rate; /* as a fraction of the highest; reached along a cosine */
  double held_out;            /* fraction of the text, taken from its end */
  long evaluate_every;        /* steps; 0: only at the end */
  long evaluate_batches;      /* passes per rank in one evaluation; four times as many at the end */
  long checkpoint_every;      /* steps */
  long sample;                /* characters to write at the end */
  double temperature;
  long seed;
} options;

/* Ends the program with a text on a bad command line, and with help on --help. */
options options_parse(int argc, char **argv);

#endif
