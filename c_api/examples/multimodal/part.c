/* SPDX-License-Identifier: Apache-2.0 */
#include "part.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpt/check.h"

static const otr_call_info as_float32 = {.struct_size = sizeof(otr_call_info),
                                         .flags = OTR_ACQUIRE_FLOAT32};

static void configuration(const options *o, const part_options *of, char *json, size_t room) {
  char schedule[160] = "";
  const char *precision = strcmp(of->precision, "bf16") == 0   ? ", \"bf16\": {\"enabled\": true}"
                          : strcmp(of->precision, "fp16") == 0 ? ", \"fp16\": {\"enabled\": true, "
                                                                 "\"initial_scale_power\": 10}"
                                                               : "";
  if (strcmp(o->optimizer, "SGD") != 0) {
    snprintf(schedule, sizeof schedule,
             ", \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": "
             "%ld, \"warmup_num_steps\": %ld}}",
             o->steps > 4 ? o->steps : 4, o->steps > 40 ? o->steps / 20 : 2);
  }
  snprintf(json, room,
           "{\"gradient_accumulation_steps\": %ld, \"gradient_clipping\": %.17g, \"optimizer\": "
           "{\"type\": \"%s\", \"params\": {\"lr\": %.17g}}, \"zero_optimization\": {\"stage\": "
           "%ld}%s%s}",
           o->micro_batches, o->clip, o->optimizer, o->lr, of->stage, precision, schedule);
}

void part_create(part *p, const options *o, const part_options *of, otr_comm *group) {
  weights *w = &p->weights;
  char json[640];
  configuration(o, of, json, sizeof json);
  TRY(otr_engine_create(group, json, &p->engine));
  for (int i = 0; i < w->count; i++) {
    otr_tensor initial;
    TRY(otr_tensor_init(w->initial[i], "float32", 2, w->shape[i], &initial));
    TRY(otr_engine_add_parameter(p->engine, w->name[i], &initial, NULL, &p->ids[i]));
  }
  TRY(otr_engine_commit(p->engine)); /* from here on a rank holds what its stage leaves it */
  for (int i = 0; i < w->count; i++) {
    free(w->initial[i]);
    w->initial[i] = NULL;
    w->value[i] = NULL;
  }
}

void part_destroy(part *p) {
  if (p->engine == NULL) return;
  TRY(otr_engine_finalize(p->engine));
  otr_engine_destroy(p->engine);
  weights_destroy(&p->weights);
}

void part_acquire(part *p) {
  otr_tensor tensors[MOST_WEIGHTS];
  TRY(otr_engine_acquire(p->engine, p->ids, p->weights.count, &as_float32, tensors));
  for (int i = 0; i < p->weights.count; i++) p->weights.value[i] = tensors[i].data;
}

otr_pass *part_begin_pass(part *p, const otr_tensor *grads, int64_t count,
                          const otr_call_info *tag) {
  otr_pass *pass = NULL;
  TRY(otr_pass_begin(p->engine, grads, count, tag, &pass));
  weights_clear_grads(&p->weights);
  return pass;
}

const real *part_output_grad(otr_pass *pass, int64_t which) {
  otr_tensor scaled;
  TRY(otr_pass_get_output_grad(pass, which, &scaled));
  return scaled.data;
}

void part_end_pass(part *p, otr_pass *pass) {
  weights *w = &p->weights;
  for (int i = 0; i < w->count; i++) {
    otr_tensor grad;
    TRY(otr_tensor_init(w->grad[i], "float32", 2, w->shape[i], &grad));
    TRY(otr_pass_add_grad(pass, p->ids[i], &grad, NULL)); /* in the compute dtype from here on */
  }
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
}

void part_accumulate(part *p) { TRY(otr_engine_step(p->engine, NULL)); }

void part_save_weights(part *p, otr_comm *group, const char *prefix) {
  weights *w = &p->weights;
  otr_tensor tensors[MOST_WEIGHTS];
  real *values[MOST_WEIGHTS] = {NULL};
  int32_t rank = 0;
  TRY(otr_comm_rank(group, &rank));
  for (int i = 0; i < w->count; i++) {
    values[i] = allocate(weights_elements(w, i), sizeof(real));
    TRY(otr_tensor_init(values[i], "float32", 2, w->shape[i], &tensors[i]));
    TRY(otr_engine_parameter_read(p->engine, p->ids[i], OTR_VALUE_MASTER, &tensors[i]));
  }
  if (rank == 0) {
    char path[4096];
    size_t bytes = 0;
    TRY(otr_message_pack(w->name, tensors, w->count, NULL, NULL, &bytes));
    char *message = allocate((int64_t)bytes, 1);
    TRY(otr_message_pack(w->name, tensors, w->count, NULL, message, &bytes));
    if (snprintf(path, sizeof path, "%s.%s.safetensors", prefix, p->name) >= (int)sizeof path) {
      die("--save: the name is too long");
    }
    FILE *file = fopen(path, "wb");
    const int written = file != NULL && fwrite(message, 1, bytes, file) == bytes;
    if (file == NULL || fclose(file) != 0 || !written) {
      die("cannot write %s: %s", path, strerror(errno));
    }
    free(message);
  }
  for (int i = 0; i < w->count; i++) free(values[i]);
}
