/* SPDX-License-Identifier: Apache-2.0
 * One rank under mpirun, through the public header: it makes a group, does what the scenario says,
 * and prints what became of it.   rank SCENARIO TIMEOUT "rank R: STATUS after S s: TEXT", STATUS as
 * otr_status_name; into the file OTR_TEST_LINES, since a launcher that sees a rank die may take no
 * more lines of the others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "outrigger.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t rank = -1;
static double begun;

static void say(int32_t status) {
  char line[4096];
  const int n =
      snprintf(line, sizeof line, "rank %d: %s after %.2f s: %s\n", rank, otr_status_name(status),
               now() - begun, status == OTR_OK ? "" : otr_last_error_message());
  /* One write, so that lines of ranks do not mix. */
  static int file = -1;
  if (file < 0) file = open(getenv("OTR_TEST_LINES"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (write(file, line, (size_t)n) != n) exit(1);
}

static void need(int32_t status) {
  if (status == OTR_OK) return;
  say(status);
  exit(1);
}

/* A function of the library that the plugin will use, as a host program has it. */
static void* mpi(const char* name) {
  void* const library = dlopen(getenv("OTR_MPI_LIBRARY"), RTLD_NOW | RTLD_GLOBAL);
  void* const found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) exit(2);
  return found;
}

static void initialise(int level) {
  int provided = 0;
  int (*init)(int*, char***, int, int*);
  *(void**)&init = mpi("MPI_Init_thread");
  init(NULL, NULL, level, &provided);
}

static void finalise(void) {
  int (*finalize)(void);
  *(void**)&finalize = mpi("MPI_Finalize");
  finalize();
}

static int is_patient = 1;
static int32_t interrupt(void* user_data) {
  (void)user_data;
  return is_patient ? 0 : 1;
}

int main(int argc, char** argv) {
  const char* const scenario = argc > 1 ? argv[1] : "well";
  otr_context* context = NULL;
  otr_comm_options options;
  otr_comm *comm = NULL, *copy = NULL;
  begun = now();
  signal(SIGUSR1, SIG_IGN); /* MPICH's launcher tells ranks of a dead one by it */
  otr_context_options with;
  need(otr_context_options_init(&with, sizeof with));
  with.interrupt_callback = interrupt;
  need(otr_context_create(&with, &context));
  need(otr_comm_options_init(&options, sizeof options));
  options.timeout = argc > 2 ? atof(argv[2]) : 20;
  const int level = argc > 3 ? atoi(argv[3]) : -1;
  if (level >= 0) initialise(level);
  {
    const int32_t status = otr_comm_create_mpi(context, NULL, &options, &comm);
    if (status != OTR_OK) {
      say(status);
      if (level >= 0) finalise();
      return 0;
    }
  }
  need(otr_comm_rank(comm, &rank));
  need(otr_comm_duplicate(comm, &copy));
  need(otr_comm_barrier(comm));
  begun = now();
  const int odd = rank == 1;
  is_patient = odd || strcmp(scenario, "is interrupted") != 0;
  int32_t status = OTR_OK;
  if (strcmp(scenario, "well") == 0) {
    double sum = rank + 1;
    need(otr_comm_all_reduce_sum(copy, &sum, 1));
    printf("sum %g\n", sum);
  } else if (strcmp(scenario, "dies") == 0) {
    if (odd) raise(SIGKILL);
    status = otr_comm_barrier(copy);
  } else if (strcmp(scenario, "dies moving") == 0) {
    if (odd) { /* the others are in the middle of many megabytes */
      alarm(1);
    }
    static char mine[8 << 20];
    int32_t world = 0;
    need(otr_comm_size(comm, &world));
    char* const all = malloc((size_t)world * sizeof mine);
    for (int i = 0; i < 100000 && status == OTR_OK; ++i) {
      status = otr_comm_all_gather(copy, mine, sizeof mine, all);
    }
  } else if (strcmp(scenario, "stops") == 0) {
    if (odd) raise(SIGSTOP);
    status = otr_comm_barrier(copy);
  } else if (strcmp(scenario, "is late") == 0) {
    if (odd) sleep(2);
    status = otr_comm_barrier(copy);
  } else if (strcmp(scenario, "is interrupted") == 0) {
    if (odd) sleep(2); /* the others' hosts end the wait, and make the call again */
    status = otr_comm_barrier(copy);
    if (status == OTR_E_INTERRUPTED) {
      say(status);
      double other = 0;
      say(otr_comm_all_reduce_sum(copy, &other, 1)); /* another call: refused */
      is_patient = 1;
      status = otr_comm_barrier(copy);
    }
  } else if (strcmp(scenario, "leaves") == 0) {
    if (odd) {
      otr_comm_destroy(copy);
      copy = NULL;
    } else {
      status = otr_comm_barrier(copy);
    }
    say(status);
    status = otr_comm_barrier(comm); /* the others go on */
  } else if (strcmp(scenario, "aborts") == 0) {
    status = odd ? otr_comm_abort(comm, "enough") : OTR_OK;
    status = otr_comm_barrier(copy);
  } else if (strcmp(scenario, "differs") == 0) {
    double value = 0;
    status = odd ? otr_comm_all_reduce_sum(copy, &value, 1) : otr_comm_barrier(copy);
  } else if (strcmp(scenario, "finalises") == 0) {
    finalise();
    status = otr_comm_barrier(copy);
  }
  say(status);
  otr_comm_destroy(copy);
  otr_comm_destroy(comm);
  otr_context_destroy(context);
  if (level >= 0 && strcmp(scenario, "well") == 0) finalise();
  return 0;
}
