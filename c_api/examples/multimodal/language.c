/* SPDX-License-Identifier: Apache-2.0 */
#include "language.h"

#include <stdlib.h>
#include <tgmath.h>

#include "../gpt/check.h"

enum {
  WORD = 0,
  PLACE = WORD + 1,
  LISTEN = PLACE + 1,
  LOOK = LISTEN + ATTENTION_WEIGHTS,
  FEED = LOOK + ATTENTION_WEIGHTS,
  AFTER = FEED + FEED_WEIGHTS,
  SCORES = AFTER + 2
};

void language_declare(weights *w, int length, uint64_t seed) {
  weights_add(w, "word", WORDS, WIDTH, 0, 0.3, seed);
  weights_add(w, "place", length + 1, WIDTH, 0, 0.1, seed);
  weights_add_norm(w, "listen.norm.gain", "listen.norm.bias", WIDTH);
  weights_add_linear(w, "listen.queries.matrix", "listen.queries.bias", WIDTH, WIDTH, seed);
  weights_add_linear(w, "listen.keys_values.matrix", "listen.keys_values.bias", WIDTH, 2 * WIDTH,
                     seed);
  weights_add_linear(w, "listen.out.matrix", "listen.out.bias", WIDTH, WIDTH, seed);
  weights_add_norm(w, "look.norm.gain", "look.norm.bias", WIDTH);
  weights_add_linear(w, "look.queries.matrix", "look.queries.bias", WIDTH, WIDTH, seed);
  weights_add_linear(w, "look.keys_values.matrix", "look.keys_values.bias", WIDTH, 2 * WIDTH, seed);
  weights_add_linear(w, "look.out.matrix", "look.out.bias", WIDTH, WIDTH, seed);
  weights_add_norm(w, "feed.norm.gain", "feed.norm.bias", WIDTH);
  weights_add_linear(w, "feed.in.matrix", "feed.in.bias", WIDTH, WIDE, seed);
  weights_add_linear(w, "feed.out.matrix", "feed.out.bias", WIDE, WIDTH, seed);
  weights_add_norm(w, "after.gain", "after.bias", WIDTH);
  weights_add_linear(w, "scores.matrix", "scores.bias", WIDTH, WORDS, seed);
}

language language_create(pool *p, int strips, int length) {
  const int places = length + 1;
  const int64_t rows = (int64_t)strips * places;
  const language l = {strips,
                      places,
                      allocate(rows, sizeof(int)),
                      pool_take(p, rows * WIDTH),
                      pool_take(p, rows * WIDTH),
                      pool_take(p, rows * WORDS),
                      attention_create(p, strips, places, places, 1),
                      attention_create(p, strips, places, length * PATCHES_OF_DIGIT, 0),
                      feed_create(p, rows),
                      norm_create(p, rows)};
  return l;
}

void language_destroy(language *l) { free(l->said); }

void language_say(const language *l, const int *words) {
  for (int s = 0; s < l->strips; s++) {
    int *said = l->said + (int64_t)s * l->length;
    said[0] = WORD_BEGIN;
    for (int i = 1; i < l->length; i++) said[i] = words[(int64_t)s * (l->length - 1) + i - 1];
  }
}

void language_forward(const language *l, const weights *w, const real *const *embedding) {
  const int64_t rows = (int64_t)l->strips * l->length;
  for (int64_t r = 0; r < rows; r++) {
    const real *word = w->value[WORD] + (int64_t)l->said[r] * WIDTH;
    const real *place = w->value[PLACE] + r % l->length * WIDTH;
    for (int i = 0; i < WIDTH; i++) l->x[r * WIDTH + i] = word[i] + place[i];
  }
  attention_forward(&l->listen, l->x, NULL, w, LISTEN);
  attention_forward(&l->look, l->x, embedding, w, LOOK);
  feed_forward(&l->digest, l->x, w, FEED, rows);
  norm_forward(l->after, l->last, l->x, w, AFTER, rows);
  linear_forward(l->scores, l->last, w, SCORES, rows);
}

double language_loss(const language *l, const int *words, double factor, real *d_scores) {
  const int64_t rows = (int64_t)l->strips * l->length;
  double loss = 0;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t strip = r / l->length, place = r % l->length;
    const int next = place == l->length - 1 ? WORD_END : words[strip * (l->length - 1) + place];
    const real *score = l->scores + r * WORDS;
    real *d = d_scores + r * WORDS;
    real highest = score[0], sum = 0;
    for (int i = 1; i < WORDS; i++) highest = score[i] > highest ? score[i] : highest;
    for (int i = 0; i < WORDS; i++) sum += d[i] = exp(score[i] - highest);
    loss += log((double)sum) + (double)highest - (double)score[next];
    for (int i = 0; i < WORDS; i++) {
      d[i] = (d[i] / sum - (i == next)) * (real)(factor / (double)rows);
    }
  }
  return loss / (double)rows;
}

void language_backward(const language *l, weights *w, const real *d_scores,
                       const real *const *embedding, real *const *add_embedding) {
  const int64_t rows = (int64_t)l->strips * l->length;
  real *dx = allocate(rows * WIDTH, sizeof(real)), *d_last = allocate(rows * WIDTH, sizeof(real));
  linear_backward(d_last, d_scores, l->last, w, SCORES, rows);
  norm_backward(l->after, dx, d_last, w, AFTER, rows);
  feed_backward(&l->digest, dx, w, FEED, rows);
  attention_backward(&l->look, dx, embedding, add_embedding, w, LOOK);
  attention_backward(&l->listen, dx, NULL, NULL, w, LISTEN);
  for (int64_t r = 0; r < rows; r++) {
    real *word = w->grad[WORD] + (int64_t)l->said[r] * WIDTH;
    real *place = w->grad[PLACE] + r % l->length * WIDTH;
    for (int i = 0; i < WIDTH; i++) word[i] += dx[r * WIDTH + i];
    for (int i = 0; i < WIDTH; i++) place[i] += dx[r * WIDTH + i];
  }
  free(d_last);
  free(dx);
}

void language_read(const language *l, const weights *w, const real *const *embedding, int *words) {
  const int digits = l->length - 1;
  for (int64_t i = 0; i < (int64_t)l->strips * digits; i++) words[i] = 0;
  for (int i = 0; i < digits; i++) {
    language_say(l, words);
    language_forward(l, w, embedding);
    for (int s = 0; s < l->strips; s++) {
      const real *score = l->scores + ((int64_t)s * l->length + i) * WORDS;
      int best = 0;
      for (int word = 1; word < WORDS; word++) best = score[word] > score[best] ? word : best;
      words[(int64_t)s * digits + i] = best;
    }
  }
}
