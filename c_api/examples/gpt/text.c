/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "random.h"

enum { TRAINING_SEQUENCES = 2 }; /* purpose of the random streams */

text *text_load(const char *path, double held_out_fraction) {
  text *t = allocate(1, sizeof *t);
  t->token = (unsigned char *)read_file(path, &t->length);

  int number[256];
  for (int c = 0; c < 256; c++) number[c] = -1;
  for (int64_t i = 0; i < t->length; i++) number[t->token[i]] = 0;
  for (int c = 0; c < 256; c++) {
    if (number[c] < 0) continue;
    t->symbol[t->vocab] = (char)c;
    number[c] = t->vocab++;
  }
  for (int64_t i = 0; i < t->length; i++) t->token[i] = (unsigned char)number[t->token[i]];
  t->train_length = t->length - (int64_t)(held_out_fraction * (double)t->length);
  return t;
}

void text_destroy(text *t) {
  if (t == NULL) return;
  free(t->token);
  free(t);
}

static void copy_sequence(const text *t, int64_t start, int length, int *inputs, int *targets) {
  for (int i = 0; i < length; i++) {
    inputs[i] = t->token[start + i];
    targets[i] = t->token[start + i + 1];
  }
}

void text_training_sequence(const text *t, uint64_t seed, int64_t step, int64_t index, int length,
                            int *inputs, int *targets) {
  uint64_t purpose = TRAINING_SEQUENCES + ((uint64_t)step << 8);
  random_stream stream = random_start(seed, purpose, (uint64_t)index);
  int64_t starts = t->train_length - length;
  if (starts < 1) die("%lld characters are too few to train on", (long long)t->train_length);
  copy_sequence(t, (int64_t)(random_uniform(&stream) * (double)starts), length, inputs, targets);
}

void text_held_out_sequence(const text *t, int64_t index, int64_t count, int length, int *inputs,
                            int *targets) {
  int64_t starts = t->length - t->train_length - length;
  if (starts < 1) die("the held-out part is shorter than one sequence of %d", length);
  copy_sequence(t, t->train_length + starts * index / count, length, inputs, targets);
}

double text_bigram_loss(const text *t) {
  int64_t *pairs = allocate((int64_t)t->vocab * t->vocab, sizeof *pairs);
  int64_t *firsts = allocate(t->vocab, sizeof *firsts);
  for (int64_t i = 0; i + 1 < t->train_length; i++) {
    pairs[t->token[i] * t->vocab + t->token[i + 1]]++;
    firsts[t->token[i]]++;
  }
  double loss = 0;
  for (int64_t i = t->train_length; i + 1 < t->length; i++) {
    int64_t pair = pairs[t->token[i] * t->vocab + t->token[i + 1]] + 1;
    loss -= log((double)pair / (double)(firsts[t->token[i]] + t->vocab));
  }
  free(pairs);
  free(firsts);
  return loss / (double)(t->length - t->train_length - 1);
}
