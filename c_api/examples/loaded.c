/* SPDX-License-Identifier: Apache-2.0
 * A program that is not linked against the library and loads it when it runs: one symbol gives the
 * table of all functions. It learns y = W x by SGD.   loaded [LIBRARY]
 */
#include <dlfcn.h>
#include <outrigger_api.h>
#include <stdio.h>

#define TRY(call) \
  if ((call) != OTR_OK) return fprintf(stderr, "%s\n", otr->last_error_message()), 1

static const otr_api *load(const char *path) {
  const otr_api *otr = NULL;
  otr_get_api_function get_api;
  const char *(*last_error_message)(void);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), NULL;
  *(void **)&get_api = dlsym(library, "otr_get_api");
  *(void **)&last_error_message = dlsym(library, "otr_last_error_message");
  if (get_api == NULL || last_error_message == NULL)
    return fprintf(stderr, "%s is no library of Outrigger\n", path), NULL;
  if (get_api(OTR_ABI_VERSION, sizeof *otr, &otr) != OTR_OK)
    return fprintf(stderr, "%s: %s\n", path, last_error_message()), NULL;
  return otr;
}

int main(int argc, char **argv) {
  const char *config = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1}}}";
  const float x[3][2] = {{1, 0}, {0, 1}, {1, 1}}, target[3] = {3, -2, 1}; /* W = 3, -2 */
  float zeros[2] = {0, 0}, now[2];
  int64_t shape[1] = {2}, w = 0;
  otr_context *context = NULL;
  otr_comm *comm = NULL;
  otr_engine *engine = NULL;
  otr_pass *pass = NULL;
  otr_tensor initial, gradient, master;
  const otr_api *otr = load(argc > 1 ? argv[1] : "liboutrigger.so.0");
  if (otr == NULL) return 1;

  TRY(otr->context_create(NULL, &context));
  TRY(otr->comm_create_self(context, &comm));
  TRY(otr->engine_create(comm, config, &engine));
  TRY(otr->tensor_init(zeros, "float32", 1, shape, &initial));
  TRY(otr->tensor_init(now, "float32", 1, shape, &master));
  TRY(otr->engine_add_parameter(engine, "W", &initial, NULL, &w));
  TRY(otr->engine_commit(engine));
  for (int step = 0; step < 200; step++) {
    float slope[2] = {0, 0}; /* of ½ Σ (W x − target)² */
    TRY(otr->engine_parameter_read(engine, w, OTR_VALUE_MASTER, &master));
    for (int i = 0; i < 3; i++) {
      const float error = now[0] * x[i][0] + now[1] * x[i][1] - target[i];
      for (int c = 0; c < 2; c++) slope[c] += error * x[i][c];
    }
    TRY(otr->tensor_init(slope, "float32", 1, shape, &gradient));
    TRY(otr->pass_begin(engine, NULL, 0, NULL, &pass));
    TRY(otr->pass_add_grad(pass, w, &gradient, NULL));
    TRY(otr->pass_end(pass));
    otr->pass_destroy(pass);
    TRY(otr->engine_step(engine, NULL));
  }
  TRY(otr->engine_parameter_read(engine, w, OTR_VALUE_MASTER, &master));
  printf("Outrigger %s: W = %.3f %.3f\n", otr->version(), now[0], now[1]);
  TRY(otr->engine_finalize(engine));
  otr->engine_destroy(engine), otr->comm_destroy(comm), otr->context_destroy(context);
  return 0;
}
