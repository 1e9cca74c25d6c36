/* SPDX-License-Identifier: Apache-2.0
 * The step beside the host: while it runs, the next batch is loaded. Ctrl-C ends a wait for other
 * ranks in good order. Runs alone, or on more ranks: outrigger run -n 2 -- overlap
 */
#include <outrigger.h>
#include <signal.h>
#include <stdio.h>
#define TRY(call) \
  if ((call) != OTR_OK) return fprintf(stderr, "%s\n", otr_last_error_message()), 1

enum { SAMPLES = 4 };

typedef struct {
  float x[SAMPLES][2], target[SAMPLES];
} Batch;

/* In place of a file or a network: y = 3 a - 2 b. */
static void load_batch(int number, Batch *batch) {
  for (int i = 0; i < SAMPLES; i++) {
    batch->x[i][0] = (float)((number + i) % 5 - 2);
    batch->x[i][1] = (float)((number * 3 + i) % 7 - 3);
    batch->target[i] = 3 * batch->x[i][0] - 2 * batch->x[i][1];
  }
}

static int backward(otr_engine *engine, const Batch *batch) {
  const int64_t id = 0;
  int64_t shape[1] = {2};
  float dw[2] = {0, 0};
  otr_tensor w, grad;
  otr_pass *pass = NULL;
  TRY(otr_engine_acquire(engine, &id, 1, NULL, &w));
  for (int i = 0; i < SAMPLES; i++) {
    const float *W = w.data, *x = batch->x[i];
    const float error = W[0] * x[0] + W[1] * x[1] - batch->target[i];
    for (int c = 0; c < 2; c++) dw[c] += error * x[c];
  }
  TRY(otr_engine_release(engine, &id, 1, NULL));
  TRY(otr_tensor_init(dw, "float32", 1, shape, &grad));
  TRY(otr_pass_begin(engine, NULL, 0, NULL, &pass));
  TRY(otr_pass_add_grad(pass, id, &grad, NULL));
  TRY(otr_pass_end(pass));
  otr_pass_destroy(pass);
  return 0;
}

static int train(otr_engine *engine, int steps) {
  Batch batch;
  int loaded = 0;
  load_batch(0, &batch);
  for (int step = 0; step < steps; step++) {
    otr_step_report report = OTR_STEP_REPORT_INIT;
    if (backward(engine, &batch) != 0) return 1;
    TRY(otr_engine_step_begin(engine)); /* returns at once */
    load_batch(step + 1, &batch);       /* meanwhile */
    loaded++;
    TRY(otr_engine_report(engine, -1, &report)); /* the step's report, or its error */
    if (report.outcome != OTR_STEP_APPLIED) return fprintf(stderr, "step %d skipped\n", step), 1;
  }
  printf("%d batches loaded beside %d steps\n", loaded, steps);
  return 0;
}

static volatile sig_atomic_t interrupted = 0;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

static int32_t asked_to_stop(void *user_data) {
  (void)user_data;
  return interrupted;
}

int main(void) {
  float zeros[2] = {0, 0};
  int64_t shape[1] = {2}, id = 0;
  otr_context_options options;
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engine = NULL;
  otr_tensor w;
  signal(SIGINT, on_interrupt);
  TRY(otr_context_options_init(&options, sizeof options));
  options.interrupt_callback = asked_to_stop; /* asked by calls that wait, on their own thread */
  TRY(otr_context_create(&options, &context));
  TRY(otr_comm_from_env(context, NULL, &comm));
  TRY(otr_engine_create(comm, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.05}}}",
                        &engine));
  TRY(otr_tensor_init(zeros, "float32", 1, shape, &w));
  TRY(otr_engine_add_parameter(engine, "W", &w, NULL, &id));
  TRY(otr_engine_commit(engine));
  if (train(engine, 300) != 0) return 1;
  TRY(otr_engine_acquire(engine, &id, 1, NULL, &w));
  printf("W = %.3f %.3f\n", ((float *)w.data)[0], ((float *)w.data)[1]);
  TRY(otr_engine_finalize(engine));
  otr_engine_destroy(engine), otr_comm_destroy(comm), otr_context_destroy(context);
  return 0;
}
