/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L

#include "worker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char failure[512];

int bench_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure, sizeof failure, format, arguments);
  va_end(arguments);
  return -1;
}

int64_t bench_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void* bench_allocate(size_t bytes) {
  void* block = NULL;
  if (posix_memalign(&block, 4096, bytes) != 0) return NULL;
  return memset(block, 0, bytes);
}

int bench_read_file(const char* path, char* buffer, size_t size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return bench_fail("%s cannot be read", path);
  size_t length = fread(buffer, 1, size - 1, file);
  buffer[length] = '\0';
  fclose(file);
  return length < size - 1 ? 0 : bench_fail("%s is too long", path);
}

int bench_write_samples(const char* folder, const char* name, const float* values, size_t count) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "wb");
  if (file == NULL) return bench_fail("%s cannot be written", path);
  size_t written = fwrite(values, sizeof *values, count, file);
  return fclose(file) == 0 && written == count ? 0 : bench_fail("%s was not written whole", path);
}

static int answer(const char* name, const char* facts) {
  printf("{\"%s\": %s}\n", name, facts);
  return fflush(stdout);
}

static int answer_failure(void) {
  for (char* c = failure; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '\'';
  }
  printf("{\"error\": \"%s\"}\n", failure);
  fflush(stdout);
  return 1;
}

static int run(const bench_worker* worker, long times, char* facts) {
  if (worker->prepare(worker->self) != 0) return -1;
  int64_t start = bench_now();
  for (long i = 0; i < times; i++) {
    if (worker->work(worker->self) != 0) return -1;
  }
  int64_t end = bench_now();
  if (worker->facts_of_work != NULL && worker->facts_of_work(worker->self, facts) != 0) return -1;
  printf("{\"run\": [%lld, %lld, %s]}\n", (long long)start, (long long)end, facts);
  return fflush(stdout);
}

int bench_serve(const bench_worker* worker) {
  char line[4096], facts[BENCH_FACTS] = "{}";
  if (worker->setup(worker->self, facts) != 0) return answer_failure();
  answer("ready", facts);
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    strcpy(facts, "{}");
    if (strcmp(line, "quit") == 0) break;
    if (strncmp(line, "check ", 6) == 0) {
      if (worker->check(worker->self, line + 6, facts) != 0) return answer_failure();
      answer("checked", facts);
    } else if (strncmp(line, "shape ", 6) == 0 && worker->shape != NULL) {
      if (worker->shape(worker->self, line + 6, facts) != 0) return answer_failure();
      answer("ready", facts);
    } else if (strncmp(line, "run ", 4) == 0) {
      if (run(worker, atol(line + 4), facts) != 0) return answer_failure();
    } else {
      bench_fail("unknown command %s", line);
      return answer_failure();
    }
  }
  return 0;
}
