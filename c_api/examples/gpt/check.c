/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outrigger.h"

static const char *rank_text(void) {
  const char *rank = getenv("RANK");
  return rank != NULL ? rank : "0";
}

void check_status(int32_t status, const char *call) {
  if (status == OTR_OK) return;
  int name_length = (int)strcspn(call, "(");
  fprintf(stderr, "rank %s: %.*s: %s: %s\n", rank_text(), name_length, call,
          otr_status_name(status), otr_last_error_message());
  exit(EXIT_FAILURE);
}

void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "rank %s: ", rank_text());
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(EXIT_FAILURE);
}

void *allocate(int64_t count, size_t size) {
  void *memory = calloc(count > 0 ? (size_t)count : 1, size);
  if (memory == NULL) die("out of memory: %lld × %zu bytes", (long long)count, size);
  return memory;
}

char *read_file(const char *path, int64_t *out_size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) die("cannot open %s: %s", path, strerror(errno));
  int64_t size = 0, capacity = 1 << 16;
  char *content = allocate(capacity, 1);
  for (;;) {
    size += (int64_t)fread(content + size, 1, (size_t)(capacity - 1 - size), file);
    if (size < capacity - 1) break;
    capacity *= 2;
    char *larger = realloc(content, (size_t)capacity);
    if (larger == NULL) die("out of memory while reading %s", path);
    content = larger;
  }
  if (ferror(file)) die("cannot read %s: %s", path, strerror(errno));
  fclose(file);
  content[size] = '\0';
  if (out_size != NULL) *out_size = size;
  return content;
}
