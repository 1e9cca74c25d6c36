/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines for the languages of plain.i. The library calls with a lock held and from threads of
 * its own, which a language may not know: a line waits here until the language asks for it. */
#ifndef OUTRIGGER_SWIG_PLAIN_LOG_H
#define OUTRIGGER_SWIG_PLAIN_LOG_H

#include <pthread.h>

#include "plain.h"

enum { OTR_SWIG_LINES = 10000 }; /* kept at a time; later ones are counted and dropped */

typedef struct otr_swig_line {
  struct otr_swig_line* next;
  int32_t level;
  char text[];
} otr_swig_line;

static struct {
  pthread_mutex_t mutex;
  otr_swig_line *first, *last;
  int64_t count, dropped;
} otr_swig_lines = {PTHREAD_MUTEX_INITIALIZER, NULL, NULL, 0, 0};

static otr_swig_line* otr_swig_line_of(int32_t level, const char* text) {
  const size_t size = strlen(text) + 1;
  otr_swig_line* line = (otr_swig_line*)malloc(sizeof *line + size);
  if (!line) return NULL;
  line->next = NULL;
  line->level = level;
  memcpy(line->text, text, size);
  return line;
}

static void otr_swig_log(int32_t level, const char* text, void* user_data) {
  (void)user_data;
  otr_swig_line* line = otr_swig_line_of(level, text);
  pthread_mutex_lock(&otr_swig_lines.mutex);
  if (line && otr_swig_lines.count < OTR_SWIG_LINES) {
    if (otr_swig_lines.last) otr_swig_lines.last->next = line;
    if (!otr_swig_lines.first) otr_swig_lines.first = line;
    otr_swig_lines.last = line;
    otr_swig_lines.count++;
    line = NULL;
  } else {
    otr_swig_lines.dropped++;
  }
  pthread_mutex_unlock(&otr_swig_lines.mutex);
  free(line);
}

/* The caller's. After the last line that waited comes one that counts what was dropped. */
static otr_swig_line* otr_swig_log_take(void) {
  pthread_mutex_lock(&otr_swig_lines.mutex);
  otr_swig_line* line = otr_swig_lines.first;
  const int64_t dropped = line ? 0 : otr_swig_lines.dropped;
  if (line) {
    otr_swig_lines.first = line->next;
    if (!line->next) otr_swig_lines.last = NULL;
    otr_swig_lines.count--;
  } else {
    otr_swig_lines.dropped = 0;
  }
  pthread_mutex_unlock(&otr_swig_lines.mutex);
  if (dropped == 0) return line;
  char text[96];
  snprintf(text, sizeof text, "%lld lines were dropped: ask for them more often",
           (long long)dropped);
  return otr_swig_line_of(OTR_LOG_WARNING, text);
}

#endif /* OUTRIGGER_SWIG_PLAIN_LOG_H */
