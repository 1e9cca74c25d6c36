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

void progress_begin(progress *p, const char *name, int64_t steps, const char *csv_path) {
  memset(p, 0, sizeof *p);
  p->name = name;
  p->steps = steps;
  p->terminal = isatty(STDOUT_FILENO);
  p->begin = seconds_now();
  p->held_out = -1;
  if (csv_path == NULL) return;
  p->csv = fopen(csv_path, "w");
  if (p->csv == NULL) die("cannot write %s: %s", csv_path, strerror(errno));
  fprintf(p->csv,
          "step,tokens,loss,held_out_loss,learning_rate,grad_norm,clip_coefficient,updates,"
          "vanished,seconds\n");
}

static void draw(progress *p, const otr_step_report *report) {
  enum { WIDTH = 24 };
  char bar[WIDTH * 3 + 1] = "", held_out[32] = "";
  int filled = (int)(WIDTH * p->step / p->steps);
  for (int i = 0; i < WIDTH; i++) strcat(bar, i < filled ? "█" : "·");
  if (p->held_out >= 0) snprintf(held_out, sizeof held_out, "  held-out %.3f", p->held_out);
  double speed = (double)p->tokens / p->seconds_for_steps;
  double elapsed = seconds_now() - p->begin;
  int left = (int)(elapsed / (double)p->step * (double)(p->steps - p->step) + 0.5);
  printf("%s%-22s %s %3d%%  loss %.3f%s  |g| %.2f  %.1fk tokens/s  %d:%02d left%s",
         p->terminal ? "\r" : "", p->name, bar, (int)(100 * p->step / p->steps), p->loss, held_out,
         report->grad_norm, speed / 1e3, left / 60, left % 60, p->terminal ? "\033[K" : "\n");
  fflush(stdout);
}

void progress_step(progress *p, double loss, double held_out, int64_t tokens, double seconds,
                   const otr_step_report *report) {
  int64_t tenth = 10 * p->step / p->steps;
  p->step++;
  p->tokens = tokens;
  p->loss = p->step == 1 ? loss : 0.95 * p->loss + 0.05 * loss;
  if (held_out >= 0) p->held_out = held_out;
  p->seconds_for_steps += seconds;
  p->updates += report->updates;
  p->vanished += report->vanished;

  if (p->csv != NULL) {
    fprintf(p->csv, "%lld,%lld,%.6f,", (long long)p->step, (long long)p->tokens, loss);
    if (held_out >= 0) fprintf(p->csv, "%.6f", held_out);
    fprintf(p->csv, ",%.6e,%.6f,%.6f,%lld,%lld,%.6f\n", report->lr, report->grad_norm,
            report->clip_coefficient, (long long)report->updates, (long long)report->vanished,
            seconds);
  }
  double now = seconds_now();
  int due = p->terminal ? now - p->shown > 0.2 : 10 * p->step / p->steps > tenth;
  if (due || p->step == p->steps) {
    draw(p, report);
    p->shown = now;
  }
}

void progress_end(progress *p) {
  if (p->terminal) printf("\n");
  if (p->csv != NULL && fclose(p->csv) != 0) die("cannot write the CSV file: %s", strerror(errno));
  p->csv = NULL;
}
