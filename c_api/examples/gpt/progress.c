/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static FILE *open_csv(const progress *p, const char *path) {
  FILE *file = p->now.step > 0 ? fopen(path, "r+") : NULL;
  if (file != NULL) {
    fseek(file, 0, SEEK_END);
    if (ftell(file) >= p->now.csv_bytes && ftruncate(fileno(file), p->now.csv_bytes) == 0 &&
        fseek(file, 0, SEEK_END) == 0) {
      return file;
    }
    fclose(file);
  }
  file = fopen(path, "w");
  if (file == NULL) die("cannot write %s: %s", path, strerror(errno));
  fprintf(file,
          "step,tokens,loss,held_out_loss,learning_rate,grad_norm,clip_coefficient,updates,"
          "vanished,seconds\n");
  return file;
}

void progress_begin(progress *p, const char *name, int64_t steps, const char *csv_path) {
  if (p->now.step == 0) p->now.held_out = -1;
  p->name = name;
  p->steps = steps;
  p->first = p->now.step;
  p->terminal = isatty(STDOUT_FILENO);
  p->begin = seconds_now();
  p->csv = csv_path != NULL ? open_csv(p, csv_path) : NULL;
}

static void draw(progress *p, const otr_step_report *report) {
  enum { WIDTH = 24 };
  char bar[WIDTH * 3 + 1] = "", held_out[32] = "";
  int filled = (int)(WIDTH * p->now.step / p->steps);
  for (int i = 0; i < WIDTH; i++) strcat(bar, i < filled ? "█" : "·");
  if (p->now.held_out >= 0) snprintf(held_out, sizeof held_out, "  held-out %.3f", p->now.held_out);
  double speed = (double)p->now.tokens / p->now.seconds_for_steps;
  double elapsed = seconds_now() - p->begin;
  double each = elapsed / (double)(p->now.step - p->first);
  int left = (int)(each * (double)(p->steps - p->now.step) + 0.5);
  printf("%s%-22s %s %3d%%  loss %.3f%s  |g| %.2f  %.1fk tokens/s  %d:%02d left%s",
         p->terminal ? "\r" : "", p->name, bar, (int)(100 * p->now.step / p->steps), p->now.loss,
         held_out, report->grad_norm, speed / 1e3, left / 60, left % 60,
         p->terminal ? "\033[K" : "\n");
  fflush(stdout);
}

void progress_step(progress *p, double loss, double held_out, int64_t tokens, double seconds,
                   const otr_step_report *report) {
  int64_t tenth = 10 * (p->now.step - 1) / p->steps;
  p->now.tokens = tokens;
  p->now.loss = p->now.step == 1 ? loss : 0.95 * p->now.loss + 0.05 * loss;
  if (held_out >= 0) p->now.held_out = held_out;
  p->now.seconds_for_steps += seconds;
  p->now.updates += report->updates;
  p->now.vanished += report->vanished;

  if (p->csv != NULL) {
    fprintf(p->csv, "%lld,%lld,%.6f,", (long long)p->now.step, (long long)p->now.tokens, loss);
    if (held_out >= 0) fprintf(p->csv, "%.6f", held_out);
    fprintf(p->csv, ",%.6e,%.6f,%.6f,%lld,%lld,%.6f\n", report->lr, report->grad_norm,
            report->clip_coefficient, (long long)report->updates, (long long)report->vanished,
            seconds);
  }
  double now = seconds_now();
  int due = p->terminal ? now - p->shown > 0.2 : 10 * p->now.step / p->steps > tenth;
  if (due || p->now.step == p->steps) {
    draw(p, report);
    p->shown = now;
  }
}

void progress_flush(progress *p) {
  if (p->csv == NULL) return;
  if (fflush(p->csv) != 0) die("cannot write the CSV file: %s", strerror(errno));
  p->now.csv_bytes = ftell(p->csv);
}

void progress_end(progress *p) {
  if (p->terminal) printf("\n");
  if (p->csv != NULL && fclose(p->csv) != 0) die("cannot write the CSV file: %s", strerror(errno));
  p->csv = NULL;
}
