/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <time.h>

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void clock_begin(phase_clock *c) {
  const phase_clock zero = {{0}, seconds_now()};
  *c = zero;
}

void clock_lap(phase_clock *c, phase p) {
  const double now = seconds_now();
  c->seconds[p] += now - c->last;
  c->last = now;
}
