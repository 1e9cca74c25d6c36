/* SPDX-License-Identifier: Apache-2.0
 * A model's beginning and end: parameters with their initial values, and memory for activations.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "model.h"
#include "random.h"

enum { INITIAL_VALUES = 1 }; /* purpose of the random streams */

/* Declares a parameter with normal values of the given deviation, or, where it is 0, all equal to
 * `fill`. */
static int64_t declare(gpt *model, uint64_t seed, const char *name, int64_t rows, int64_t columns,
                       double deviation, double fill, int32_t contributions) {
  int64_t count = rows * (columns > 0 ? columns : 1);
  real *initial = allocate(count, sizeof(real));
  random_stream stream =
      random_start(seed, INITIAL_VALUES, (uint64_t)weights_total(model->weights));
  for (int64_t i = 0; i < count; i++) {
    initial[i] = (real)(deviation > 0 ? deviation * random_normal(&stream) : fill);
  }
  int64_t id = weights_declare(model->weights, name, initial, rows, columns, contributions);
  free(initial);
  return id;
}

static void declare_parameters(gpt *model, uint64_t seed) {
  const gpt_config *config = &model->config;
  const int64_t c = config->width;
  const double normal = 0.02;
  /* Each block adds two branches to the stream; this keeps its variance independent of the depth.
   */
  const double branch = normal / sqrt(2.0 * config->layers);
  const struct {
    const char *name;
    int64_t rows, columns;
    double deviation, fill;
  } table[BLOCK_PARAMETERS] = {
      [NORM1_GAIN] = {"norm1.gain", c, 0, 0, 1},
      [NORM1_BIAS] = {"norm1.bias", c, 0, 0, 0},
      [QKV_WEIGHT] = {"attention.qkv.weight", 3 * c, c, normal, 0},
      [QKV_BIAS] = {"attention.qkv.bias", 3 * c, 0, 0, 0},
      [OUT_WEIGHT] = {"attention.out.weight", c, c, branch, 0},
      [OUT_BIAS] = {"attention.out.bias", c, 0, 0, 0},
      [NORM2_GAIN] = {"norm2.gain", c, 0, 0, 1},
      [NORM2_BIAS] = {"norm2.bias", c, 0, 0, 0},
      [UP_WEIGHT] = {"network.up.weight", 4 * c, c, normal, 0},
      [UP_BIAS] = {"network.up.bias", 4 * c, 0, 0, 0},
      [DOWN_WEIGHT] = {"network.down.weight", c, 4 * c, branch, 0},
      [DOWN_BIAS] = {"network.down.bias", c, 0, 0, 0},
  };
  model->embedding[0] = declare(model, seed, "embedding.token", config->vocab, c, normal, 0, 2);
  model->embedding[1] =
      declare(model, seed, "embedding.position", config->context, c, normal, 0, 1);
  for (int l = 0; l < config->layers; l++) {
    for (int p = 0; p < BLOCK_PARAMETERS; p++) {
      char name[64];
      snprintf(name, sizeof name, "block.%d.%s", l, table[p].name);
      model->block[l][p] = declare(model, seed, name, table[p].rows, table[p].columns,
                                   table[p].deviation, table[p].fill, 1);
    }
  }
  model->last_norm[0] = declare(model, seed, "last_norm.gain", c, 0, 0, 1, 1);
  model->last_norm[1] = declare(model, seed, "last_norm.bias", c, 0, 0, 0, 1);
}

/* Cuts `count` numbers off the one block; with memory NULL it only counts. */
static real *take(real *memory, int64_t *used, int64_t count) {
  real *place = memory != NULL ? memory + *used : NULL;
  *used += (count + 15) / 16 * 16; /* 64-byte lines of floats */
  return place;
}

static int64_t lay_out_activations(gpt *model, real *memory) {
  const gpt_config *config = &model->config;
  const int64_t c = config->width, t = config->context;
  const int64_t rows = (int64_t)config->batch * t, stream = rows * c;
  int64_t used = 0;
  for (int l = 0; l < config->layers; l++) {
    block_activations *a = &model->at[l];
    a->in = take(memory, &used, stream);
    a->norm1 = take(memory, &used, stream);
    a->mean1 = take(memory, &used, rows);
    a->deviation1 = take(memory, &used, rows);
    a->qkv = take(memory, &used, 3 * stream);
    a->probability = take(memory, &used, rows * t * config->heads);
    a->attention = take(memory, &used, stream);
    a->middle = take(memory, &used, stream);
    a->norm2 = take(memory, &used, stream);
    a->mean2 = take(memory, &used, rows);
    a->deviation2 = take(memory, &used, rows);
    a->up = take(memory, &used, 4 * stream);
    a->gelu = take(memory, &used, 4 * stream);
  }
  model->last_in = take(memory, &used, stream);
  model->norm = take(memory, &used, stream);
  model->mean = take(memory, &used, rows);
  model->deviation = take(memory, &used, rows);
  model->logits = take(memory, &used, rows * config->vocab);
  model->d_logits = take(memory, &used, rows * config->vocab);
  model->d_stream = take(memory, &used, stream);
  model->d_narrow = take(memory, &used, stream);
  model->d_wide = take(memory, &used, 4 * stream);
  model->d_scores = take(memory, &used, t * t);
  return used;
}

gpt *gpt_create(const gpt_config *config, weight_store *w, uint64_t seed) {
  if (config->layers < 1 || config->layers > GPT_MAX_LAYERS) {
    die("%d layers; legal are 1 to %d", config->layers, GPT_MAX_LAYERS);
  }
  if (config->heads < 1 || config->width % config->heads != 0) {
    die("width %d is not a multiple of %d heads", config->width, config->heads);
  }
  gpt *model = allocate(1, sizeof *model);
  model->config = *config;
  model->weights = w;
  declare_parameters(model, seed);
  model->memory = allocate(lay_out_activations(model, NULL), sizeof(real));
  lay_out_activations(model, model->memory);
  return model;
}

void gpt_destroy(gpt *model) {
  if (model == NULL) return;
  free(model->memory);
  free(model);
}
