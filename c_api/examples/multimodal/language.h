/* SPDX-License-Identifier: Apache-2.0
 * A small transformer that reads strips of digits out. It knows nothing of groups, ranks and
 * messages.
 */
#ifndef MULTIMODAL_LANGUAGE_H
#define MULTIMODAL_LANGUAGE_H

#include "digits.h"
#include "layers.h"

/* Words: the ten digits, and these. */
enum { WORD_BEGIN = 10, WORD_END = 11, WORDS = 12 };

/* The activations of one micro-batch. */
typedef struct language {
  int strips, length; /* length: digits of a strip, and the end */
  int *said;          /* [strips][length]: the words so far, from WORD_BEGIN on */
  real *x, *last, *scores;
  attention listen, look;
  feed digest;
  norm after;
} language;

void language_declare(weights *w, int length, uint64_t seed);
language language_create(pool *p, int strips, int length);
void language_destroy(language *l);

/* words: [strips][digits of a strip], from which comes what was said before each. */
void language_say(const language *l, const int *words);
/* Scores of the next word at every place. embedding: of each strip, [patches][WIDTH]. */
void language_forward(const language *l, const weights *w, const real *const *embedding);
/* The mean loss over these strips' words and ends. d_scores: its gradient times `factor`. */
double language_loss(const language *l, const int *words, double factor, real *d_scores);
void language_backward(const language *l, weights *w, const real *d_scores,
                       const real *const *embedding, real *const *add_embedding);

/* Reads strips out, one word after the other, each the likeliest. words: [strips][digits]. */
void language_read(const language *l, const weights *w, const real *const *embedding, int *words);

#endif
