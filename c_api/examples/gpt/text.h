/* SPDX-License-Identifier: Apache-2.0
 * The text to learn: characters as numbers, a training part and a held-out part at the end.
 */
#ifndef GPT_TEXT_H
#define GPT_TEXT_H

#include <stdint.h>

typedef struct text {
  unsigned char *token; /* length numbers below vocab */
  int64_t length;
  int64_t train_length; /* the rest is held out */
  int vocab;
  char symbol[256]; /* number → character */
} text;

/* Every distinct byte of the file becomes a number, in the order of the bytes. */
text *text_load(const char *path, double held_out_fraction);
void text_destroy(text *t);

/* Training sequence number `index` of step `step`: inputs and the characters that follow each. It
 * is a function of its arguments only, so ranks share a global batch by numbering their sequences.
 */
void text_training_sequence(const text *t, uint64_t seed, int64_t step, int64_t index, int length,
                            int *inputs, int *targets);

/* Held-out sequence number index of count, evenly spread over the held-out part. */
void text_held_out_sequence(const text *t, int64_t index, int64_t count, int length, int *inputs,
                            int *targets);

/* What a table of character pairs reaches on the held-out part: its counts come from the training
 * part, each with one added. Nats per character. */
double text_bigram_loss(const text *t);

#endif
