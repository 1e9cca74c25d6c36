/* SPDX-License-Identifier: Apache-2.0
 * The steps of two groups. The vision ranks are up to `ahead` micro-batches ahead of the gradients
 * that they have got: while the language ranks read one, they look at the next.
 *
 * Nobody has to say that a message has been read: a language rank answers an embedding with its
 * gradient when it is done with it, and a vision rank begins a micro-batch only when it is done
 * with the gradient `ahead` before.
 */
#include <stdlib.h>

#include "../gpt/check.h"
#include "job.h"

static const char kEmbedding[] = "embedding", kGrad[] = "embedding_grad";

/* One norm and one clip coefficient for both groups; both are updated, or neither. */
static void step_together(job *j, otr_engine *engine) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  TRY(otr_step_many(&engine, 1, j->world, &report));
  j->report = report;
  clock_lap(&j->clock, STEP);
}

static void look(job *j, int64_t number) {
  vision *v = &j->looks[number % j->o.ahead];
  take_strips(j, number, 0, v);
  clock_lap(&j->clock, FORWARD);
  wire_begin(&j->wire, kEmbedding, number, NULL, j->places);
  clock_lap(&j->clock, TRANSFER);
  vision_forward(v, &j->vision.weights, j->places);
  clock_lap(&j->clock, FORWARD);
  wire_send(&j->wire);
  clock_lap(&j->clock, TRANSFER);
}

/* Each part of the gradient is an output's gradient of its own: it stays where it is, and the pass
 * applies what the tag lacks. */
static void learn_to_look(job *j, int64_t number) {
  const wire *w = &j->wire;
  otr_call_info tag;
  otr_tensor *grads = allocate(w->count, sizeof *grads);
  wire_wait(&j->wire);
  clock_lap(&j->clock, WAITING);
  wire_open(&j->wire, kGrad, number, j->parts, &tag);
  clock_lap(&j->clock, TRANSFER);
  for (int i = 0; i < w->count; i++) grads[i] = w->routes[i].tensor;
  otr_pass *pass = part_begin_pass(&j->vision, grads, w->count, &tag);
  wire_close(&j->wire);
  for (int i = 0; i < w->count; i++) {
    const real *scaled = part_output_grad(pass, i);
    for (int s = 0; s < w->routes[i].strips; s++) {
      j->d_parts[w->routes[i].first + s] = scaled + (int64_t)s * w->patches * WIDTH;
    }
  }
  vision_backward(&j->looks[number % j->o.ahead], &j->vision.weights, j->d_parts);
  part_end_pass(&j->vision, pass);
  free(grads);
  clock_lap(&j->clock, BACKWARD);
}

static void vision_step(job *j, int64_t step) {
  const int64_t first = step * j->o.micro_batches, end = first + j->o.micro_batches;
  int64_t next = first;
  part_acquire(&j->vision);
  while (next < end && next < first + j->o.ahead) look(j, next++);
  for (int64_t number = first; number < end; number++) {
    learn_to_look(j, number);
    if (number == end - 1) break;
    part_accumulate(&j->vision);
    if (next < end) look(j, next++);
  }
  step_together(j, j->vision.engine);
}

/* The tag of a gradient that leaves this pass, and is multiplied by grad_scale on its way. */
static otr_call_info tag_of(const job *j, const otr_pass *pass) {
  otr_call_info tag;
  TRY(otr_call_info_init(&tag, sizeof tag));
  TRY(otr_pass_get_tag(pass, &tag));
  tag.loss_scale *= j->o.grad_scale;
  return tag;
}

static void learn_to_read(job *j, int64_t number) {
  language *l = j->reads;
  int64_t shape[3] = {l->strips, l->length, WORDS};
  otr_tensor d_scores;
  take_words(j, number, 0);
  language_say(l, j->words);
  clock_lap(&j->clock, FORWARD);
  wire_wait(&j->wire);
  clock_lap(&j->clock, WAITING);
  wire_open(&j->wire, kEmbedding, number, j->parts, NULL);
  clock_lap(&j->clock, TRANSFER);
  language_forward(l, &j->language.weights, j->parts);
  j->loss += part_of_strips(j) * language_loss(l, j->words, factor_of_mean(j), j->d_scores);
  clock_lap(&j->clock, FORWARD);
  TRY(otr_tensor_init(j->d_scores, "float32", 3, shape, &d_scores));
  otr_pass *pass = part_begin_pass(&j->language, &d_scores, 1, NULL);
  const otr_call_info tag = tag_of(j, pass);
  wire_begin(&j->wire, kGrad, number, &tag, j->places);
  language_backward(l, &j->language.weights, part_output_grad(pass, 0), j->parts, j->places);
  wire_close(&j->wire);
  clock_lap(&j->clock, BACKWARD);
  for (int s = 0; s < l->strips; s++) {
    for (int64_t i = 0; i < (int64_t)j->wire.patches * WIDTH; i++) {
      j->places[s][i] *= (real)j->o.grad_scale;
    }
  }
  wire_send(&j->wire); /* before anything that the vision group need not wait for */
  clock_lap(&j->clock, TRANSFER);
  part_end_pass(&j->language, pass);
  clock_lap(&j->clock, BACKWARD);
}

static void language_step(job *j, int64_t step) {
  part_acquire(&j->language);
  for (int64_t micro = 0; micro < j->o.micro_batches; micro++) {
    learn_to_read(j, step * j->o.micro_batches + micro);
    if (micro < j->o.micro_batches - 1) part_accumulate(&j->language);
  }
  step_together(j, j->language.engine);
}

void step_of_groups(job *j, int64_t step) {
  if (j->has_vision) {
    vision_step(j, step);
  } else {
    language_step(j, step);
  }
}

void read_of_groups(job *j, int64_t number) {
  if (j->has_vision) {
    take_strips(j, number, 1, j->looks);
    wire_begin(&j->wire, kEmbedding, number, NULL, j->places);
    vision_forward(j->looks, &j->vision.weights, j->places);
    wire_send(&j->wire);
  } else {
    wire_wait(&j->wire);
    wire_open(&j->wire, kEmbedding, number, j->parts, NULL);
    language_read(j->reads, &j->language.weights, j->parts, j->read);
    wire_close(&j->wire);
  }
}
