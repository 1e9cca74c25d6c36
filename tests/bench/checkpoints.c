/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint of float32 masters and two moments on one rank: saved, saved asynchronously, with a
 * change right behind it, or loaded; scripts/bench/peers/checkpoints.py is the same for PyTorch.
 * bench_checkpoints MODE FOLDER MATRICES SIDE; MODE: save, hold_up, hold_up_change or load
 */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"
#include "outrigger.h"
#include "worker.h"

enum { MAX_MATRICES = 64, STRIDE = 97 };

#define TRY(call)                                                                       \
  do {                                                                                  \
    if ((call) != OTR_OK) return bench_fail("%s: %s", #call, otr_last_error_message()); \
  } while (0)

typedef struct bench {
  const char *mode, *folder;
  int32_t matrices;
  int64_t side, saves, ids[MAX_MATRICES], small, shape[2], one;
  otr_context* context;
  otr_comm* comm;
  otr_engine* engine;
} bench;

static int is(const bench* b, const char* mode) { return strcmp(b->mode, mode) == 0; }
static int is_asynchronous(const bench* b) { return strncmp(b->mode, "hold_up", 7) == 0; }

static const char kConfig[] =
    "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
    "{\"lr\": 0.001}}, \"outrigger\": {\"checkpoint\": {\"asynchronous\": %s}}}";

static int add_matrices(bench* b) {
  size_t count = (size_t)(b->side * b->side);
  float* initial = bench_allocate(sizeof(float) * count);
  if (initial == NULL) return bench_fail("out of memory");
  for (int32_t m = 0; m < b->matrices; m++) {
    char name[32];
    otr_tensor tensor;
    snprintf(name, sizeof name, "matrix.%d", m);
    fill_float32(initial, (uint32_t)m, count, 512);
    TRY(otr_tensor_init(initial, "float32", 2, b->shape, &tensor));
    TRY(otr_engine_add_parameter(b->engine, name, &tensor, NULL, &b->ids[m]));
  }
  free(initial);
  otr_tensor tensor;
  float value = 1;
  TRY(otr_tensor_init(&value, "float32", 1, &b->one, &tensor));
  TRY(otr_engine_add_parameter(b->engine, "small", &tensor, NULL, &b->small));
  return 0;
}

/* Moments of their own in each matrix: pages of zeros would cost nothing to read. */
static int write_moments(bench* b) {
  size_t count = (size_t)(b->side * b->side);
  float* values = bench_allocate(sizeof(float) * count);
  if (values == NULL) return bench_fail("out of memory");
  for (int32_t m = 0; m < b->matrices; m++) {
    otr_tensor tensor;
    TRY(otr_tensor_init(values, "float32", 2, b->shape, &tensor));
    fill_float32(values, (uint32_t)(100 + m), count, 4096);
    TRY(otr_engine_parameter_write(b->engine, b->ids[m], OTR_VALUE_EXP_AVG, &tensor));
    for (size_t i = 0; i < count; i++) values[i] *= values[i];
    TRY(otr_engine_parameter_write(b->engine, b->ids[m], OTR_VALUE_EXP_AVG_SQ, &tensor));
  }
  free(values);
  return 0;
}

static int save(bench* b) {
  char tag[32];
  otr_save_options options;
  snprintf(tag, sizeof tag, "save%lld", (long long)b->saves);
  TRY(otr_save_options_init(&options, sizeof options));
  options.asynchronous = is_asynchronous(b);
  TRY(otr_engine_save(b->engine, b->folder, tag, &options));
  return 0;
}

static int setup(void* self, char* facts) {
  bench* b = self;
  char config[512];
  otr_context_options context_options;
  TRY(otr_context_options_init(&context_options, sizeof context_options));
  context_options.workers = 2;
  TRY(otr_context_create(&context_options, &b->context));
  TRY(otr_comm_create_self(b->context, &b->comm));
  snprintf(config, sizeof config, kConfig, is_asynchronous(b) ? "true" : "false");
  TRY(otr_engine_create(b->comm, config, &b->engine));
  if (add_matrices(b) != 0) return -1;
  TRY(otr_engine_commit(b->engine));
  if (write_moments(b) != 0) return -1;
  if (is(b, "load") && save(b) != 0) return -1;
  snprintf(facts, BENCH_FACTS, "%s", otr_build_info());
  return 0;
}

static int remove_entry(const char* path, const struct stat* status, int kind, struct FTW* place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

/* What is read comes from the disk. */
static int forget_entry(const char* path, const struct stat* status, int kind, struct FTW* place) {
  (void)status, (void)place;
  if (kind != FTW_F) return 0;
  int file = open(path, O_RDONLY);
  if (file < 0) return -1;
  int failed = posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
  return failed;
}

static int each_file(const char* path,
                     int (*body)(const char*, const struct stat*, int, struct FTW*)) {
  return nftw(path, body, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : bench_fail("%s: nftw", path);
}

/* The last checkpoint goes, and with it what the file system does for its space. */
static int prepare(void* self) {
  bench* b = self;
  char path[4096];
  if (is(b, "load")) return each_file(b->folder, forget_entry);
  snprintf(path, sizeof path, "%s/save%lld", b->folder, (long long)b->saves);
  if (access(path, F_OK) == 0 && each_file(path, remove_entry) != 0) return -1;
  b->saves++;
  sync();
  return 0;
}

/* What a step does first: what was not written by now is copied. */
static int change(bench* b) {
  otr_tensor tensor;
  float value = 2;
  TRY(otr_tensor_init(&value, "float32", 1, &b->one, &tensor));
  TRY(otr_engine_parameter_write(b->engine, b->small, OTR_VALUE_EXP_AVG, &tensor));
  return 0;
}

static int work(void* self) {
  bench* b = self;
  if (is(b, "hold_up_change")) return save(b) == 0 ? change(b) : -1;
  if (!is(b, "load")) return save(b);
  TRY(otr_engine_load(b->engine, b->folder, NULL, NULL));
  return 0;
}

/* Of hold_up: how long it took until the copy was durable. Nothing goes on beside the next side. */
static int facts_of_work(void* self, char* facts) {
  bench* b = self;
  otr_save_status status = OTR_SAVE_STATUS_INIT;
  TRY(otr_engine_wait_save(b->engine, -1, &status));
  snprintf(facts, BENCH_FACTS, "{\"seconds_to_the_end\": %.9g}", status.seconds);
  return 0;
}

/* Weights and moments, after a load of what was saved. */
static int check(void* self, const char* folder, char* facts) {
  bench* b = self;
  (void)facts;
  if (prepare(b) != 0 || work(b) != 0) return -1;
  TRY(otr_engine_wait_save(b->engine, -1, NULL));
  if (!is(b, "load")) TRY(otr_engine_load(b->engine, b->folder, NULL, NULL));
  int64_t count = b->side * b->side, samples = 0;
  float* sampled = bench_allocate(sizeof(float) * (size_t)(3 * b->matrices * (count / STRIDE + 1)));
  float* values = bench_allocate(sizeof(float) * (size_t)count);
  if (sampled == NULL || values == NULL) return bench_fail("out of memory");
  static const int32_t kinds[3] = {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ};
  for (int32_t m = 0; m < b->matrices; m++) {
    for (int kind = 0; kind < 3; kind++) {
      otr_tensor whole;
      TRY(otr_tensor_init(values, "float32", 2, b->shape, &whole));
      TRY(otr_engine_parameter_read(b->engine, b->ids[m], kinds[kind], &whole));
      for (int64_t i = 0; i < count; i += STRIDE) sampled[samples++] = values[i];
    }
  }
  char name[64];
  snprintf(name, sizeof name, "outrigger.%s", b->mode);
  int status = bench_write_samples(folder, name, sampled, (size_t)samples);
  free(sampled);
  free(values);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  static bench b;
  b.mode = argv[1];
  b.folder = argv[2];
  b.matrices = atoi(argv[3]);
  b.side = atoi(argv[4]);
  b.shape[0] = b.shape[1] = b.side;
  b.one = 1;
  if (b.matrices < 1 || b.matrices > MAX_MATRICES) return 2;
  const bench_worker worker = {&b, setup, NULL, check, prepare, work, facts_of_work};
  return bench_serve(&worker);
}
