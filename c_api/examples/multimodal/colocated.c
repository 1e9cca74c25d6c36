/* SPDX-License-Identifier: Apache-2.0
 * The steps of processes that have both models: the same arithmetic, and no messages.
 */
#include <string.h>

#include "../gpt/check.h"
#include "job.h"

static void micro_batch(job *j, int64_t number) {
  vision *v = j->looks;
  language *l = j->reads;
  int64_t scores_shape[3] = {l->strips, l->length, WORDS};
  int64_t shape[3] = {v->strips, v->patches, WIDTH};
  const size_t bytes = (size_t)v->strips * (size_t)v->patches * WIDTH * sizeof(real);
  otr_tensor grad;
  otr_call_info tag;
  take_strips(j, number, 0, v);
  take_words(j, number, 0);
  vision_forward(v, &j->vision.weights, j->places);
  language_say(l, j->words);
  language_forward(l, &j->language.weights, j->parts);
  j->loss += part_of_strips(j) * language_loss(l, j->words, factor_of_mean(j), j->d_scores);
  clock_lap(&j->clock, FORWARD);

  TRY(otr_tensor_init(j->d_scores, "float32", 3, scores_shape, &grad));
  otr_pass *pass = part_begin_pass(&j->language, &grad, 1, NULL);
  memset(j->grads[0], 0, bytes);
  language_backward(l, &j->language.weights, part_output_grad(pass, 0), j->parts, j->grads);
  TRY(otr_call_info_init(&tag, sizeof tag));
  TRY(otr_pass_get_tag(pass, &tag));
  part_end_pass(&j->language, pass);

  TRY(otr_tensor_init(j->grads[0], "float32", 3, shape, &grad));
  pass = part_begin_pass(&j->vision, &grad, 1, &tag);
  const real *scaled = part_output_grad(pass, 0);
  for (int s = 0; s < v->strips; s++) {
    j->d_parts[s] = scaled + (int64_t)s * v->patches * WIDTH;
  }
  vision_backward(v, &j->vision.weights, j->d_parts);
  part_end_pass(&j->vision, pass);
  clock_lap(&j->clock, BACKWARD);
}

void step_colocated(job *j, int64_t step) {
  otr_engine *engines[2] = {j->vision.engine, j->language.engine};
  otr_step_report reports[2] = {OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT};
  part_acquire(&j->vision);
  part_acquire(&j->language);
  for (int64_t micro = 0; micro < j->o.micro_batches; micro++) {
    micro_batch(j, step * j->o.micro_batches + micro);
    if (micro == j->o.micro_batches - 1) break;
    part_accumulate(&j->vision);
    part_accumulate(&j->language);
  }
  TRY(otr_step_many(engines, 2, NULL, reports)); /* both, or neither */
  j->report = reports[0];
  clock_lap(&j->clock, STEP);
}

void read_colocated(job *j, int64_t number) {
  take_strips(j, number, 1, j->looks);
  vision_forward(j->looks, &j->vision.weights, j->places);
  language_read(j->reads, &j->language.weights, j->parts, j->read);
}
