/* SPDX-License-Identifier: Apache-2.0
 * A rank that trains until a call fails, wherever a launcher has put it: for test_kills.py, which
 * kills one.   trains STAGE ELEMENTS TIMEOUT
 * It writes into the file OTR_TEST_LINES: "rank R process P ready at T", and in the end "rank R
 * process P ended at T: STATUS TEXT"; T is the machine's monotonic clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "outrigger.h"

enum { PARAMETERS = 5 };

static int32_t rank = -1;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One write, so that lines of ranks do not mix. */
static void say(const char* format, ...) {
  char line[4096], text[4000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const int n = snprintf(line, sizeof line, "rank %d process %d %s\n", rank, (int)getpid(), text);
  const int file = open(getenv("OTR_TEST_LINES"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file < 0 || write(file, line, (size_t)n) != n) exit(1);
  close(file);
}

static int failed(int32_t status) {
  if (status == OTR_OK) return 0;
  const double moment = now();
  say("ended at %.6f: %s %s", moment, otr_status_name(status), otr_last_error_message());
  return 1;
}

/* One step; not 0 if a call failed. */
static int step(otr_engine* engine, const int64_t* ids, int64_t elements) {
  otr_tensor values[PARAMETERS], slot, seed;
  otr_pass* pass = NULL;
  float one = 1;
  int64_t shape = 1;
  if (failed(otr_engine_acquire(engine, ids, PARAMETERS, NULL, values))) return 1;
  if (failed(otr_engine_release(engine, ids, PARAMETERS, NULL))) return 1;
  otr_tensor_init(&one, "float32", 1, &shape, &seed);
  if (failed(otr_pass_begin(engine, &seed, 1, NULL, &pass))) return 1;
  for (int i = PARAMETERS; i-- > 0;) {
    if (failed(otr_pass_get_slot(pass, ids[i], &slot))) break;
    for (int64_t j = 0; j < elements; ++j) ((float*)slot.data)[j] = (float)(j % 7 - 3);
    if (failed(otr_pass_add_grad(pass, ids[i], &slot, NULL))) break;
    if (i == 0 && !failed(otr_pass_end(pass))) {
      otr_pass_destroy(pass);
      return failed(otr_engine_step(engine, NULL));
    }
  }
  otr_pass_destroy(pass);
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  int64_t elements = atoll(argv[2]);
  char config[256];
  snprintf(config, sizeof config,
           "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}},"
           " \"zero_optimization\": {\"stage\": %d, \"reduce_bucket_size\": %lld}}",
           atoi(argv[1]), (long long)elements * 2);
  otr_context* context = NULL;
  otr_comm* comm = NULL;
  otr_engine* engine = NULL;
  otr_comm_options options;
  int64_t ids[PARAMETERS];
  if (failed(otr_context_create(NULL, &context))) return 1;
  otr_comm_options_init(&options, sizeof options);
  options.timeout = atof(argv[3]);
  if (failed(otr_comm_from_env(context, &options, &comm))) return 1;
  otr_comm_rank(comm, &rank);
  if (failed(otr_engine_create(comm, config, &engine))) return 1;
  float* const zeros = calloc((size_t)elements, sizeof *zeros);
  for (int i = 0; i < PARAMETERS; ++i) {
    char name[2] = {(char)('a' + i), 0};
    otr_tensor initial;
    otr_tensor_init(zeros, "float32", 1, &elements, &initial);
    if (failed(otr_engine_add_parameter(engine, name, &initial, NULL, &ids[i]))) return 1;
  }
  if (failed(otr_engine_commit(engine))) return 1;
  if (step(engine, ids, elements) != 0) return 1;
  say("ready at %.6f", now());
  while (step(engine, ids, elements) == 0) {
  }
  free(zeros);
  otr_engine_destroy(engine);
  otr_comm_destroy(comm);
  otr_context_destroy(context);
  return 0;
}
