/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/collectives.c over MPI. mpirun hands the driver's lines to rank 0 only, which tells
 * the others and answers for them all.   mpirun -n WORLD mpi_collectives OPERATION BYTES
 */
#define _POSIX_C_SOURCE 200809L

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "numbers.h"

enum { STRIDE = 97 };

static const char* operation;
static int rank, world;
static size_t bytes, all_bytes;
static char *mine, *all, *sums;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int is(const char* name) { return strcmp(operation, name) == 0; }

static void work(void) {
  if (is("barrier")) MPI_Barrier(MPI_COMM_WORLD);
  if (is("all_reduce"))
    MPI_Allreduce(MPI_IN_PLACE, sums, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (is("all_gather"))
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static int check(const char* folder) {
  char path[4096];
  double* values = (double*)sums;
  for (size_t i = 0; i < bytes / 8; i++) values[i] = (double)(rank + (int)(i % 7));
  work();
  snprintf(path, sizeof path, "%s/Open MPI.%s.%d", folder, operation, rank);
  FILE* file = fopen(path, "wb");
  if (file == NULL) return 1;
  if (is("all_gather")) {
    for (size_t i = 0; i < all_bytes / 4; i += STRIDE) fwrite((float*)all + i, 4, 1, file);
  }
  if (is("all_reduce")) {
    for (size_t i = 0; i < bytes / 8; i++) {
      const float value = (float)values[i];
      fwrite(&value, 4, 1, file);
    }
  }
  memset(sums, 0, bytes);
  return fclose(file);
}

static void run(long times) {
  MPI_Barrier(MPI_COMM_WORLD);
  long long span[2] = {-now(), 0}, both[2];
  for (long i = 0; i < times; i++) work();
  span[1] = now();
  MPI_Reduce(span, both, 2, MPI_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"run\": [%lld, %lld, {}]}\n", -both[0], both[1]);
}

/* MPI's own wait would spin on a core while other sides are timed. */
static void receive(char* line, int size) {
  const struct timespec pause = {0, 100000};
  MPI_Request request;
  int done = 0;
  MPI_Ibcast(line, size, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
  for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); !done;
       MPI_Test(&request, &done, MPI_STATUS_IGNORE)) {
    nanosleep(&pause, NULL);
  }
}

int main(int argc, char** argv) {
  char line[4096];
  if (argc != 3) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  operation = argv[1];
  bytes = strtoull(argv[2], NULL, 10);
  all_bytes = bytes * (size_t)world;
  mine = calloc(1, bytes + 64);
  all = calloc(1, all_bytes + 64);
  sums = calloc(1, bytes + 64);
  if (mine == NULL || all == NULL || sums == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  fill_float32((float*)mine, (uint32_t)rank, bytes / 4, 64);
  memset(all, 1, all_bytes); /* every page is there */
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\"\n")] = '\0';
  if (rank == 0) printf("{\"ready\": {\"peer\": \"%s\"}}\n", version);
  for (;;) {
    fflush(stdout);
    if (rank == 0 && fgets(line, sizeof line, stdin) == NULL) strcpy(line, "quit");
    receive(line, sizeof line);
    line[strcspn(line, "\n")] = '\0';
    if (strcmp(line, "quit") == 0) break;
    if (strncmp(line, "run ", 4) == 0) run(atol(line + 4));
    if (strncmp(line, "check ", 6) == 0) {
      int bad = check(line + 6), any = 0;
      MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
      if (rank == 0)
        puts(any ? "{\"error\": \"a file could not be written\"}" : "{\"checked\": {}}");
    }
  }
  return MPI_Finalize();
}
