/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain memory speed of a few threads, to set figures beside: memcpy, and a = b + s * c with
 * ordinary and (on x86-64) with non-temporal stores. Bytes that the program reads and writes count,
 * the ones that ordinary stores read first do not. bench_memory_speed THREADS
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "worker.h"

enum { MAX_THREADS = 64, KINDS = 3 };
static const size_t kCount = (size_t)64 << 20; /* float32 elements an array, 256 MiB */
static const char* const kNames[KINDS] = {"memcpy", "triad", "triad_nontemporal"};
static const double kBytes[KINDS] = {8, 12, 12}; /* an element */

typedef struct bench {
  int threads;
  float *a, *b, *c;
  double speed[KINDS]; /* GB/s; 0: not to be had here */
} bench;

typedef struct part {
  bench* whole;
  size_t begin, count;
  int kind;
} part;

static void triad_nontemporal(float* a, const float* b, const float* c, size_t count) {
#if defined(__SSE2__)
  const __m128 s = _mm_set1_ps(3);
  for (size_t i = 0; i < count; i += 4) {
    _mm_stream_ps(a + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(s, _mm_loadu_ps(c + i))));
  }
  _mm_sfence();
#else
  (void)a, (void)b, (void)c, (void)count;
#endif
}

static void* run_part(void* argument) {
  const part* p = argument;
  float* restrict a = p->whole->a + p->begin;
  const float* restrict b = p->whole->b + p->begin, * restrict c = p->whole->c + p->begin;
  if (p->kind == 0) {
    memcpy(a, b, p->count * sizeof *a);
  } else if (p->kind == 1) {
    for (size_t i = 0; i < p->count; i++) a[i] = b[i] + 3 * c[i];
  } else {
    triad_nontemporal(a, b, c, p->count);
  }
  return NULL;
}

static int run_kind(bench* w, int kind) {
  pthread_t threads[MAX_THREADS];
  part parts[MAX_THREADS];
  size_t share = kCount / (size_t)w->threads / 16 * 16;
  for (int t = 0; t < w->threads; t++) {
    parts[t] = (part){w, share * (size_t)t, share, kind};
    if (pthread_create(&threads[t], NULL, run_part, &parts[t]) != 0) return bench_fail("no thread");
  }
  for (int t = 0; t < w->threads; t++) pthread_join(threads[t], NULL);
  return 0;
}

static int setup(void* self, char* facts) {
  bench* w = self;
  w->a = bench_allocate(kCount * sizeof *w->a);
  w->b = bench_allocate(kCount * sizeof *w->b);
  w->c = bench_allocate(kCount * sizeof *w->c);
  if (w->a == NULL || w->b == NULL || w->c == NULL) return bench_fail("out of memory");
  snprintf(facts, BENCH_FACTS, "{\"threads\": %d, \"array_mib\": %zu}", w->threads,
           kCount * sizeof *w->a >> 20);
  return 0;
}

static int check(void* self, const char* folder, char* facts) {
  (void)self, (void)folder, (void)facts;
  return 0;
}

static int prepare(void* self) {
  (void)self;
  return 0;
}

static int work(void* self) {
  bench* w = self;
  for (int kind = 0; kind < KINDS; kind++) {
    int64_t start = bench_now();
    if (run_kind(w, kind) != 0) return -1;
    w->speed[kind] = kBytes[kind] * (double)kCount / (double)(bench_now() - start);
  }
#if !defined(__SSE2__)
  w->speed[2] = 0;
#endif
  return 0;
}

static int facts_of_work(void* self, char* facts) {
  const bench* w = self;
  snprintf(facts, BENCH_FACTS, "{\"%s\": %.3f, \"%s\": %.3f, \"%s\": %.3f}", kNames[0], w->speed[0],
           kNames[1], w->speed[1], kNames[2], w->speed[2]);
  return 0;
}

int main(int argc, char** argv) {
  static bench b;
  b.threads = argc == 2 ? atoi(argv[1]) : 0;
  if (b.threads < 1 || b.threads > MAX_THREADS) return 2;
  const bench_worker worker = {&b, setup, NULL, check, prepare, work, facts_of_work};
  return bench_serve(&worker);
}
