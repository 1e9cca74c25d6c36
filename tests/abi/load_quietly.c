/* SPDX-License-Identifier: Apache-2.0
 * Loading the library has no effect that a host could see: no thread, no open file, no signal
 * handler, no changed environment, no output, no changed rounding.   load_quietly LIBRARY */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int entries(const char *folder) {
  DIR *dir = opendir(folder);
  int count = 0;
  if (dir == NULL) {
    return -1;
  }
  while (readdir(dir) != NULL) {
    ++count;
  }
  closedir(dir);
  return count;
}

typedef struct footprint {
  int threads, files, handlers, variables, rounding;
} footprint;

static footprint look(void) {
  footprint seen = {entries("/proc/self/task"), entries("/proc/self/fd"), 0, 0, fegetround()};
  int number;
  for (number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL) {
      ++seen.handlers;
    }
  }
  while (environ[seen.variables] != NULL) {
    ++seen.variables;
  }
  return seen;
}

int main(int argc, char **argv) {
  footprint before, after;
  void *library;
  const char *(*version)(void);
  if (argc != 2) {
    return 2;
  }
  before = look();
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  after = look();
  if (memcmp(&before, &after, sizeof before) != 0) {
    fprintf(stderr, "before/after: threads %d/%d files %d/%d handlers %d/%d env %d/%d\n",
            before.threads, after.threads, before.files, after.files, before.handlers,
            after.handlers, before.variables, after.variables);
    return 1;
  }
  *(void **)&version = dlsym(library, "otr_version");
  dlclose(library); /* -z nodelete: a background thread must never lose its code */
  if (version == NULL || strchr(version(), '.') == NULL) {
    fprintf(stderr, "otr_version is missing or gives no version\n");
    return 1;
  }
  return 0;
}
