/* SPDX-License-Identifier: Apache-2.0
 * Trains a character-level GPT, sharded over the ranks that a launcher started. Outrigger keeps
 * parameters, gradients and optimizer states and does the communication; everything else is here
 * and in the files beside.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "checkpoints.h"
#include "model.h"
#include "options.h"
#include "outrigger.h"
#include "progress.h"
#include "sample.h"
#include "summary.h"
#include "text.h"

/* Everything a step needs. */
typedef struct trainer {
  options options;
  otr_comm *comm;
  otr_engine *engine;
  int32_t rank, world;
  text *text;
  gpt *model;
  int *inputs, *targets; /* [batch][context] */
} trainer;

/* Warnings of the library; all ranks have the same ones. */
static void log_line(int32_t level, const char *line, void *user_data) {
  const trainer *t = user_data;
  (void)level;
  if (t->rank == 0) fprintf(stderr, "outrigger: %s\n", line);
}

/* Linear warm-up, then half a cosine down to the final fraction. */
static double learning_rate(const options *o, int64_t step) {
  if (step < o->warmup) return o->learning_rate * (double)(step + 1) / (double)o->warmup;
  double progress = (double)(step - o->warmup) / (double)(o->steps - o->warmup);
  double cosine = 0.5 * (1 + cos(3.141592653589793 * progress));
  return o->learning_rate * (o->final_learning_rate + (1 - o->final_learning_rate) * cosine);
}

/* Fills this rank's part of pass number `pass_number`; together the ranks have one global batch. */
static void next_batch(trainer *t, int64_t pass_number) {
  for (int b = 0; b < t->options.batch; b++) {
    int64_t index = t->rank * t->options.batch + b;
    long offset = (long)b * t->options.context;
    text_training_sequence(t->text, (uint64_t)t->options.seed, pass_number, index,
                           (int)t->options.context, t->inputs + offset, t->targets + offset);
  }
}

static double mean_over_ranks(trainer *t, double value) {
  TRY(otr_comm_all_reduce_sum(t->comm, &value, 1));
  return value / t->world;
}

/* Forward, and backward from the gradient of the logits: a tensor, not a scalar loss. */
static double forward_backward(trainer *t) {
  gpt *model = t->model;
  gpt_forward(model, t->inputs, (int)t->options.batch, (int)t->options.context);
  double loss = gpt_loss(model, t->targets);

  int64_t shape[3] = {t->options.batch, t->options.context, t->text->vocab};
  otr_tensor d_logits, scaled;
  otr_pass *pass = NULL;
  TRY(otr_tensor_init(model->d_logits, "float32", 3, shape, &d_logits));
  TRY(otr_pass_begin(t->engine, &d_logits, 1, NULL, &pass));
  TRY(otr_pass_get_output_grad(pass, 0, &scaled));
  gpt_backward(model, pass, (const real *)((char *)scaled.data + scaled.byte_offset));
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  return loss;
}

/* One update, from as many passes as the configuration accumulates. Returns the mean loss over
 * ranks. */
static double train_step(trainer *t, int64_t step, otr_step_report *report) {
  double loss = 0;
  int64_t passes_before = report->micro_steps;
  TRY(otr_engine_set_group_value(t->engine, NULL, "lr", learning_rate(&t->options, step)));
  do {
    next_batch(t, report->micro_steps);
    loss += forward_backward(t);
    TRY(otr_engine_step(t->engine, report));
  } while (report->outcome == OTR_STEP_ACCUMULATED);
  return mean_over_ranks(t, loss / (double)(report->micro_steps - passes_before));
}

static double evaluate(trainer *t, int64_t batches) {
  int64_t count = batches * t->world * t->options.batch;
  int context = (int)t->options.context;
  double loss = 0;
  for (int64_t i = 0; i < batches; i++) {
    for (int b = 0; b < t->options.batch; b++) {
      int64_t index = (i * t->world + t->rank) * t->options.batch + b;
      text_held_out_sequence(t->text, index, count, context, t->inputs + (long)b * context,
                             t->targets + (long)b * context);
    }
    gpt_forward(t->model, t->inputs, (int)t->options.batch, context);
    loss += gpt_loss(t->model, t->targets);
  }
  return mean_over_ranks(t, loss / (double)batches);
}

static void train(trainer *t, progress *p) {
  const options *o = &t->options;
  int64_t tokens_per_pass = o->batch * o->context * t->world;
  otr_step_report report = OTR_STEP_REPORT_INIT;
  report.micro_steps = p->now.passes;
  while (p->now.step < o->steps) {
    double begin = seconds_now();
    double loss = train_step(t, p->now.step, &report);
    double seconds = seconds_now() - begin;
    p->now.passes = report.micro_steps;
    p->now.step++;
    int due = o->evaluate_every > 0 && p->now.step % o->evaluate_every == 0;
    double held_out = due ? evaluate(t, o->evaluate_batches) : -1;
    if (t->rank == 0) {
      progress_step(p, loss, held_out, tokens_per_pass * report.micro_steps, seconds, &report);
    }
    if (o->checkpoints == NULL || p->now.step % o->checkpoint_every != 0) continue;
    progress_flush(p);
    checkpoint_save(t->engine, o->checkpoints, &p->now);
  }
}

static void finish(trainer *t, const progress *p) {
  const options *o = &t->options;
  char *sample = allocate(o->sample + 1, 1);
  summary s = {.name = o->name, .world = t->world, .steps = o->steps, .sample = sample};
  s.held_out = evaluate(t, 4 * o->evaluate_batches);
  s.held_out_characters = 4 * o->evaluate_batches * o->batch * t->world * o->context;
  s.memory = memory_over_ranks(t->comm, t->engine);
  sample_text(t->model, t->text, (uint64_t)o->seed, o->temperature, (int)o->sample, sample);
  if (t->rank == 0) {
    s.bigram = text_bigram_loss(t->text);
    s.parameters = weights_total(t->model->weights);
    s.tokens = p->now.tokens;
    s.seconds_per_step = p->now.seconds_for_steps / (double)p->now.step;
    s.updates = p->now.updates;
    s.vanished = p->now.vanished;
    summary_print(&s);
    if (o->summary != NULL) summary_write(&s, o->summary);
  }
  free(sample);
}

int main(int argc, char **argv) {
  trainer t = {.options = options_parse(argc, argv)};
  const options *o = &t.options;
  t.text = text_load(o->text, o->held_out);

  otr_context_options context_options;
  otr_context *context = NULL;
  TRY(otr_context_options_init(&context_options, sizeof context_options));
  context_options.log_callback = log_line;
  context_options.log_user_data = &t;
  TRY(otr_context_create(&context_options, &context));
  TRY(otr_comm_from_env(context, NULL, &t.comm)); /* RANK, WORLD_SIZE … */
  TRY(otr_comm_rank(t.comm, &t.rank));
  TRY(otr_comm_size(t.comm, &t.world));

  char *config_json = o->config != NULL ? read_file(o->config, NULL) : NULL;
  TRY(otr_engine_create(t.comm, config_json, &t.engine));
  gpt_config config = {t.text->vocab, (int)o->context, (int)o->width,
                       (int)o->heads, (int)o->layers,  (int)o->batch};
  weight_store *w = weights_create(t.engine);
  t.model = gpt_create(&config, w, (uint64_t)o->seed);
  TRY(otr_engine_commit(t.engine)); /* from here on each rank holds its share only */
  weights_ready(w);
  if (o->load != NULL) weights_load(w, o->load, t.rank);

  t.inputs = allocate(o->batch * o->context, sizeof *t.inputs);
  t.targets = allocate(o->batch * o->context, sizeof *t.targets);
  progress p = {0};
  if (o->checkpoints != NULL && checkpoint_load(t.engine, o->checkpoints, &p.now) && t.rank == 0) {
    printf("%s goes on from step %lld\n", o->name, (long long)p.now.step);
  }
  if (t.rank == 0) progress_begin(&p, o->name, o->steps, o->csv);
  train(&t, &p);
  if (t.rank == 0) progress_end(&p);
  finish(&t, &p);
  if (o->save != NULL) weights_save(w, o->save, t.rank);

  TRY(otr_engine_finalize(t.engine));
  otr_engine_destroy(t.engine);
  otr_comm_destroy(t.comm);
  otr_context_destroy(context);
  gpt_destroy(t.model);
  weights_destroy(w);
  text_destroy(t.text);
  free(config_json);
  free(t.inputs);
  free(t.targets);
  return EXIT_SUCCESS;
}
