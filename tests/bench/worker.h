/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's end of the line protocol that scripts/bench/sides.py speaks (its description stands
 * in scripts/bench/peers/worker.py).
 */
#ifndef OUTRIGGER_BENCH_WORKER_H
#define OUTRIGGER_BENCH_WORKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_FACTS = 1024 };

/* Each function returns 0, or a failure whose text it left with bench_fail. `facts` has room for
 * BENCH_FACTS bytes and takes a JSON object; it holds "{}" before. */
typedef struct bench_worker {
  void* self;
  int (*setup)(void* self, char* facts);
  int (*shape)(void* self, const char* arguments,
               char* facts); /* sets up anew, in another size; may be NULL */
  int (*check)(void* self, const char* folder,
               char* facts);                     /* writes files to compare with the peer's */
  int (*prepare)(void* self);                    /* not timed; ends with a barrier of the ranks */
  int (*work)(void* self);                       /* timed */
  int (*facts_of_work)(void* self, char* facts); /* not timed; may be NULL */
} bench_worker;

/* Answers lines until "quit" or the end of input. Returns the exit status. */
int bench_serve(const bench_worker* worker);

/* Leaves a text for the driver and returns -1. */
int bench_fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* Nanoseconds of the system's monotonic clock, which all processes of a host share. */
int64_t bench_now(void);

/* Memory as a framework gets it from malloc, page-aligned, every page written. NULL: none left. */
void* bench_allocate(size_t bytes);

/* The file's text, with its end; buffer has room for size bytes. */
int bench_read_file(const char* path, char* buffer, size_t size);

/* Appends float32 values to the file FOLDER/NAME (truncated first). */
int bench_write_samples(const char* folder, const char* name, const float* values, size_t count);

#ifdef __cplusplus
}
#endif

#endif
