/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast the bytes of a float32 AdamW step can be moved at all: one pass over four arrays of
 * COUNT elements, three read and written, one only read, in the cheapest arithmetic that still
 * needs them. `check` times every form of the loop, and the fastest one is the side.
 * bench_read_modify_write COUNT THREADS
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "worker.h"

#if defined(__x86_64__) && defined(__gnu_linux__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

enum { MAX_THREADS = 1024, LINE = 16, PIECE = 1 << 18, PASSES = 3 }; /* in elements */
typedef float line __attribute__((vector_size(64), may_alias));

typedef struct bench {
  int64_t count;
  int threads, form;
  float *weight, *grad; /* plain pages, as the caller's memory of every side */
  float* moment[2];     /* huge pages wished for, and apart, as the library's moments are */
  int64_t next;         /* first element that no thread has taken */
  int64_t passes;       /* each adds a gradient of 1 to arrays of 0 */
} bench;

static inline void add(float* to, const float* from, int nontemporal) {
#if defined(__SSE2__)
  if (nontemporal) {
    for (int i = 0; i < LINE; i += 4) {
      _mm_stream_ps(to + i, _mm_add_ps(_mm_load_ps(to + i), _mm_load_ps(from + i)));
    }
    return;
  }
#endif
  (void)nontemporal;
  *(line*)to += *(const line*)from;
}

/* `run` lines of one array, then of the next: long runs suit what the processor fetches by itself.
 * `ahead`: elements further on that are asked for; 0: none. */
static inline __attribute__((always_inline)) void sweep(bench* b, int64_t begin, int64_t end,
                                                        int run, int ahead, int nontemporal) {
  float* arrays[3] = {b->weight, b->moment[0], b->moment[1]};
  const float* grad = b->grad;
  const int64_t step = (int64_t)run * LINE;
  int64_t i = begin;
  for (; i + step <= end; i += step) {
    for (int a = 0; a < 3; a++) {
      for (int64_t at = i; at < i + step; at += LINE) {
        if (ahead != 0) __builtin_prefetch(arrays[a] + at + ahead, 1);
        if (ahead != 0 && a == 0) __builtin_prefetch(grad + at + ahead, 0);
        add(arrays[a] + at, grad + at, nontemporal);
      }
    }
  }
  for (; i < end; i++) {
    for (int a = 0; a < 3; a++) arrays[a][i] += grad[i];
  }
}

/* The prefetching forms look 1 KiB ahead. */
#define FORM(name, run, ahead, nontemporal)                       \
  CLONES static void name(bench* b, int64_t begin, int64_t end) { \
    sweep(b, begin, end, run, ahead, nontemporal);                \
  }
FORM(lines_1, 1, 0, 0)
FORM(lines_4, 4, 0, 0)
FORM(lines_8, 8, 0, 0)
FORM(lines_16, 16, 0, 0)
FORM(lines_64, 64, 0, 0)
FORM(lines_128, 128, 0, 0)
FORM(lines_1_prefetch, 1, 256, 0)
FORM(lines_8_prefetch, 8, 256, 0)
FORM(lines_8_nontemporal, 8, 0, 1)

static const struct {
  const char* name;
  void (*pass)(bench*, int64_t, int64_t);
} kForms[] = {{"lines_1", lines_1},
              {"lines_4", lines_4},
              {"lines_8", lines_8},
              {"lines_16", lines_16},
              {"lines_64", lines_64},
              {"lines_128", lines_128},
              {"lines_1_prefetch", lines_1_prefetch},
              {"lines_8_prefetch", lines_8_prefetch},
              {"lines_8_nontemporal", lines_8_nontemporal}};
enum { FORMS = sizeof kForms / sizeof *kForms };

/* Pieces as they come, so that a thread that the system holds up does not hold up the pass. */
static void* take_pieces(void* self) {
  bench* b = self;
  for (;;) {
    int64_t begin = __atomic_fetch_add(&b->next, PIECE, __ATOMIC_RELAXED);
    if (begin >= b->count) break;
    kForms[b->form].pass(b, begin, begin + PIECE < b->count ? begin + PIECE : b->count);
  }
#if defined(__SSE2__)
  _mm_sfence();
#endif
  return NULL;
}

static int work(void* self) {
  bench* b = self;
  pthread_t threads[MAX_THREADS] = {0};
  b->next = 0;
  b->passes++;
  for (int t = 1; t < b->threads; t++) {
    if (pthread_create(&threads[t], NULL, take_pieces, b) != 0) return bench_fail("no thread");
  }
  take_pieces(b);
  for (int t = 1; t < b->threads; t++) pthread_join(threads[t], NULL);
  return 0;
}

static size_t offset_of(int moment) { return (size_t)(moment + 2) * (7 * 4096 + 2048); }

static size_t mapped(int moment, size_t bytes) {
  const size_t huge = (size_t)1 << 21;
  return (bytes + offset_of(moment) + huge - 1) / huge * huge;
}

static float* allocate_moment(int moment, size_t bytes) {
  const size_t all = mapped(moment, bytes);
  void* pages = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return NULL;
  madvise(pages, all, MADV_HUGEPAGE);
  memset(pages, 0, all);
  return (float*)((char*)pages + offset_of(moment));
}

static void release_moment(int moment, float* data, size_t bytes) {
  munmap((char*)data - offset_of(moment), mapped(moment, bytes));
}

static int setup(void* self, char* facts) {
  bench* b = self;
  const size_t bytes = (size_t)b->count * sizeof(float);
  b->weight = bench_allocate(bytes);
  b->grad = bench_allocate(bytes);
  for (int m = 0; m < 2; m++) b->moment[m] = allocate_moment(m, bytes);
  if (!b->weight || !b->grad || !b->moment[0] || !b->moment[1]) return bench_fail("out of memory");
  for (int64_t i = 0; i < b->count; i++) b->grad[i] = 1;
  b->passes = 0;
  snprintf(facts, BENCH_FACTS, "{\"threads\": %d, \"forms\": %d}", b->threads, FORMS);
  return 0;
}

static int whole(const bench* b) {
  const float expected = (float)b->passes;
  for (int64_t i = 0; i < b->count; i++) {
    if (b->weight[i] != expected || b->moment[0][i] != expected || b->moment[1][i] != expected) {
      return 0;
    }
  }
  return 1;
}

/* Every form has to touch every element once; the fastest one stays. */
static int check(void* self, const char* folder, char* facts) {
  bench* b = self;
  int64_t best[FORMS];
  int fastest = 0;
  (void)folder;
  for (int pass = 0; pass <= PASSES; pass++) {
    for (b->form = 0; b->form < FORMS; b->form++) {
      int64_t start = bench_now();
      if (work(b) != 0) return -1;
      int64_t took = bench_now() - start;
      if (pass == 0 && !whole(b)) return bench_fail("%s misses elements", kForms[b->form].name);
      if (pass <= 1 || took < best[b->form]) best[b->form] = took;
    }
  }
  size_t used = (size_t)snprintf(facts, BENCH_FACTS, "{\"forms_gb_per_s\": {");
  for (int form = 0; form < FORMS; form++) {
    if (best[form] < best[fastest]) fastest = form;
    used += (size_t)snprintf(facts + used, BENCH_FACTS - used, "%s\"%s\": %.2f", form ? ", " : "",
                             kForms[form].name, 28.0 * (double)b->count / (double)best[form]);
  }
  snprintf(facts + used, BENCH_FACTS - used, "}, \"form\": \"%s\"}", kForms[fastest].name);
  b->form = fastest;
  return 0;
}

static int prepare(void* self) {
  (void)self;
  return 0;
}

static int shape(void* self, const char* arguments, char* facts) {
  bench* b = self;
  const size_t bytes = (size_t)b->count * sizeof(float);
  free(b->weight);
  free(b->grad);
  for (int m = 0; m < 2; m++) release_moment(m, b->moment[m], bytes);
  b->count = atoll(arguments);
  return setup(b, facts);
}

int main(int argc, char** argv) {
  static bench b;
  b.count = argc == 3 ? atoll(argv[1]) : 0;
  b.threads = argc == 3 ? atoi(argv[2]) : 0;
  if (b.count < 1 || b.threads < 1 || b.threads > MAX_THREADS) return 2;
  const bench_worker worker = {&b, setup, shape, check, prepare, work, NULL};
  return bench_serve(&worker);
}
