/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stddef.h>

#include "check.h"
#include "command_line.h"

static const char purpose[] =
    "Trains a character-level GPT on a text. Start several workers with\n"
    "  outrigger run -n 2 -- gpt --text plays.txt --config zero3.json\n";

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
      {"text", "file to learn; required", .text = &o.text},
      {"config", "engine configuration, a JSON file", .text = &o.config},
      {"csv", "file for one line per step", .text = &o.csv},
      {"summary", "file for the results, JSON", .text = &o.summary},
      {"load", "weights to begin with, as --save wrote them", .text = &o.load},
      {"save", "file for the weights at the end, float32", .text = &o.save},
      {"checkpoints", "folder to save to, and to go on from", .text = &o.checkpoints},
      {"name", "what to call the run", .text = &o.name},
      {"layers", "blocks", .whole = &o.layers, .least = 1},
      {"width", "numbers per position", .whole = &o.width, .least = 1},
      {"heads", "attention heads", .whole = &o.heads, .least = 1},
      {"context", "characters per sequence", .whole = &o.context, .least = 1},
      {"batch", "sequences per rank and pass", .whole = &o.batch, .least = 1},
      {"steps", "updates", .whole = &o.steps, .least = 1},
      {"warmup", "updates of linear warm-up", .whole = &o.warmup},
      {"lr", "highest learning rate", .number = &o.learning_rate},
      {"final-lr", "last learning rate, as a fraction", .number = &o.final_learning_rate},
      {"held-out", "fraction of the text, its end", .number = &o.held_out},
      {"evaluate-every", "steps between evaluations", .whole = &o.evaluate_every},
      {"evaluate-batches", "passes per rank in each", .whole = &o.evaluate_batches, .least = 1},
      {"checkpoint-every", "steps between two", .whole = &o.checkpoint_every, .least = 1},
      {"sample", "characters to write at the end", .whole = &o.sample},
      {"temperature", "of the sampling", .number = &o.temperature},
      {"seed", "of weights, batches and sampling", .whole = &o.seed},
  };
  command_line_parse(purpose, table, sizeof table / sizeof table[0], argc, argv);
  require(o.text != NULL, "--text FILE is required");
  require(o.held_out > 0 && o.held_out < 1, "--held-out must lie between 0 and 1");
  require(o.temperature > 0, "--temperature must be above 0");
  return o;
}
