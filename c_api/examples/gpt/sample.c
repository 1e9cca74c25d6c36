/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "random.h"

enum { SAMPLED_TEXT = 3 }; /* purpose of the random stream */

static int draw(const real *logits, int vocab, double temperature, random_stream *stream) {
  double highest = (double)logits[0], sum = 0;
  for (int v = 1; v < vocab; v++) highest = fmax(highest, (double)logits[v]);
  for (int v = 0; v < vocab; v++) sum += exp(((double)logits[v] - highest) / temperature);
  double left = random_uniform(stream) * sum;
  for (int v = 0; v < vocab; v++) {
    left -= exp(((double)logits[v] - highest) / temperature);
    if (left < 0) return v;
  }
  return vocab - 1;
}

/* The whole context is computed again for each character: short code, and quick enough for a few
 * lines. */
void sample_text(gpt *model, const text *t, uint64_t seed, double temperature, int count,
                 char *out) {
  int context = model->config.context, vocab = model->config.vocab;
  random_stream stream = random_start(seed, SAMPLED_TEXT, 0);
  int *window = allocate(context, sizeof *window);
  int length = 1;
  const char *newline = memchr(t->symbol, '\n', (size_t)vocab);
  window[0] = newline != NULL ? (int)(newline - t->symbol) : 0;

  for (int i = 0; i < count; i++) {
    gpt_forward(model, window, 1, length);
    int next = draw(model->logits + (long)(length - 1) * vocab, vocab, temperature, &stream);
    out[i] = t->symbol[next];
    if (length == context) {
      memmove(window, window + 1, (size_t)(context - 1) * sizeof *window);
      length--;
    }
    window[length++] = next;
  }
  out[count] = '\0';
  free(window);
}
