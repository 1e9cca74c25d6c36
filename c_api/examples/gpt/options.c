/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

typedef struct option {
  const char *name, *help;
  const char **text;
  long *whole;
  double *number;
} option;

static void print_help(const option *table, size_t count) {
  printf(
      "Trains a character-level GPT on a text. Start several workers with\n"
      "  outrigger run -n 2 -- gpt --text plays.txt --config zero3.json\n\n");
  for (size_t i = 0; i < count; i++) {
    const option *o = &table[i];
    printf("  --%-20s %s", o->name, o->help);
    if (o->whole != NULL) printf(" (%ld)", *o->whole);
    if (o->number != NULL) printf(" (%g)", *o->number);
    if (o->text != NULL && *o->text != NULL) printf(" (%s)", *o->text);
    printf("\n");
  }
}

static void assign(const option *o, const char *value) {
  char *end = NULL;
  errno = 0;
  if (o->text != NULL) {
    *o->text = value;
    return;
  }
  if (o->whole != NULL) *o->whole = strtol(value, &end, 10);
  if (o->number != NULL) *o->number = strtod(value, &end);
  if (end == value || *end != '\0' || errno != 0) die("--%s: '%s' is not a number", o->name, value);
}

static void require(int legal, const char *rule) {
  if (!legal) die("%s; see --help", rule);
}

options options_parse(int argc, char **argv) {
  options o = {.name = "gpt",
               .layers = 4,
               .width = 128,
               .heads = 4,
               .context = 64,
               .batch = 8,
               .steps = 1000,
               .warmup = 50,
               .learning_rate = 2e-3,
               .final_learning_rate = 0.1,
               .held_out = 0.1,
               .evaluate_every = 100,
               .evaluate_batches = 8,
               .checkpoint_every = 100,
               .sample = 200,
               .temperature = 0.8,
               .seed = 1};
  const option table[] = {
      {"text", "file to learn; required", &o.text, NULL, NULL},
      {"config", "engine configuration, a JSON file", &o.config, NULL, NULL},
      {"csv", "file for one line per step", &o.csv, NULL, NULL},
      {"summary", "file for the results, JSON", &o.summary, NULL, NULL},
      {"load", "weights to begin with, as --save wrote them", &o.load, NULL, NULL},
      {"save", "file for the weights at the end, float32", &o.save, NULL, NULL},
      {"checkpoints", "folder to save to, and to go on from", &o.checkpoints, NULL, NULL},
      {"name", "what to call the run", &o.name, NULL, NULL},
      {"layers", "blocks", NULL, &o.layers, NULL},
      {"width", "numbers per position", NULL, &o.width, NULL},
      {"heads", "attention heads", NULL, &o.heads, NULL},
      {"context", "characters per sequence", NULL, &o.context, NULL},
      {"batch", "sequences per rank and pass", NULL, &o.batch, NULL},
      {"steps", "updates", NULL, &o.steps, NULL},
      {"warmup", "updates of linear warm-up", NULL, &o.warmup, NULL},
      {"lr", "highest learning rate", NULL, NULL, &o.learning_rate},
      {"final-lr", "last learning rate, as a fraction", NULL, NULL, &o.final_learning_rate},
      {"held-out", "fraction of the text, its end", NULL, NULL, &o.held_out},
      {"evaluate-every", "steps between evaluations", NULL, &o.evaluate_every, NULL},
      {"evaluate-batches", "passes per rank in each", NULL, &o.evaluate_batches, NULL},
      {"checkpoint-every", "steps between two", NULL, &o.checkpoint_every, NULL},
      {"sample", "characters to write at the end", NULL, &o.sample, NULL},
      {"temperature", "of the sampling", NULL, NULL, &o.temperature},
      {"seed", "of weights, batches and sampling", NULL, &o.seed, NULL},
  };
  const size_t count = sizeof table / sizeof table[0];
  for (int i = 1; i < argc; i++) {
    size_t k = 0;
    if (strcmp(argv[i], "--help") == 0) {
      print_help(table, count);
      exit(EXIT_SUCCESS);
    }
    while (k < count &&
           !(strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, table[k].name) == 0)) {
      k++;
    }
    if (k == count) die("unknown option '%s'; see --help", argv[i]);
    if (i + 1 == argc) die("%s needs a value", argv[i]);
    assign(&table[k], argv[++i]);
  }
  require(o.text != NULL, "--text FILE is required");
  require(o.layers > 0 && o.width > 0 && o.heads > 0 && o.context > 0 && o.batch > 0,
          "--layers, --width, --heads, --context and --batch must be at least 1");
  require(o.steps > 0 && o.warmup >= 0, "--steps must be at least 1, --warmup at least 0");
  require(o.held_out > 0 && o.held_out < 1, "--held-out must lie between 0 and 1");
  require(o.evaluate_every >= 0 && o.evaluate_batches > 0, "--evaluate-batches must be at least 1");
  require(o.checkpoint_every > 0, "--checkpoint-every must be at least 1");
  require(o.sample >= 0 && o.temperature > 0, "--temperature must be above 0");
  return o;
}
