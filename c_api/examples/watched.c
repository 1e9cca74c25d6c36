/* SPDX-License-Identifier: Apache-2.0
 * A training that is watched: each step's record goes to a callback, and to a file where the first
 * argument names a folder. Runs alone, or on more ranks: outrigger run -n 2 -- watched FOLDER
 */
#include <outrigger.h>
#include <stdio.h>
#include <string.h>
#define TRY(call) \
  if ((call) != OTR_OK) return fprintf(stderr, "%s\n", otr_last_error_message()), 1

enum { ELEMENTS = 8, STEPS = 50 };

/* A host with a JSON library reads more out of it. */
static void on_record(const char *record_json, void *user_data) {
  int *skipped = user_data;
  if (strstr(record_json, "\"outcome\":\"skipped\"") != NULL) ++*skipped;
}

static int train(otr_engine *engine) {
  const int64_t id = 0;
  int64_t shape[1] = {ELEMENTS};
  float grad[ELEMENTS];
  otr_tensor w, dw;
  otr_pass *pass = NULL;
  for (int step = 0; step < STEPS; step++) {
    double loss = 0;
    TRY(otr_engine_acquire(engine, &id, 1, NULL, &w));
    for (int i = 0; i < ELEMENTS; i++) {
      const float error = ((const float *)w.data)[i] - (float)i;
      loss += 0.5 * error * error;
      grad[i] = error;
    }
    TRY(otr_engine_release(engine, &id, 1, NULL));
    TRY(otr_tensor_init(grad, "float32", 1, shape, &dw));
    TRY(otr_pass_begin(engine, NULL, 0, NULL, &pass));
    TRY(otr_pass_add_grad(pass, id, &dw, NULL));
    TRY(otr_pass_end(pass));
    otr_pass_destroy(pass);
    TRY(otr_engine_note(engine, "loss", loss));
    TRY(otr_engine_step(engine, NULL));
  }
  return 0;
}

int main(int argc, char **argv) {
  const char *config = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.25}}}";
  float zeros[ELEMENTS] = {0};
  int64_t shape[1] = {ELEMENTS}, id = 0;
  int skipped = 0;
  char record[4096];
  size_t size = sizeof record;
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engine = NULL;
  otr_watch_options options;
  otr_tensor initial;

  TRY(otr_context_create(NULL, &context));
  TRY(otr_comm_from_env(context, NULL, &comm));
  TRY(otr_engine_create(comm, config, &engine));
  TRY(otr_tensor_init(zeros, "float32", 1, shape, &initial));
  TRY(otr_engine_add_parameter(engine, "w", &initial, NULL, &id));
  TRY(otr_engine_commit(engine));
  TRY(otr_watch_options_init(&options, sizeof options));
  options.records = argc > 1 ? argv[1] : NULL; /* gets rank-0.jsonl, rank-1.jsonl, … */
  options.callback = on_record;
  options.user_data = &skipped;
  TRY(otr_engine_watch(engine, &options));
  if (train(engine) != 0) return 1;
  TRY(otr_engine_get_record(engine, record, &size)); /* the last one, without a callback */
  printf("%d steps, %d skipped; the last record has %s\n", STEPS, skipped,
         strstr(record, "\"notes\":{\"loss\":") != NULL ? "the loss" : "no loss");
  TRY(otr_engine_finalize(engine));
  otr_engine_destroy(engine), otr_comm_destroy(comm), otr_context_destroy(context);
  return 0;
}
