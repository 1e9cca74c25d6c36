/* SPDX-License-Identifier: Apache-2.0
 * What a rank does with its time.
 */
#ifndef MULTIMODAL_CLOCK_H
#define MULTIMODAL_CLOCK_H

typedef enum phase { FORWARD, BACKWARD, TRANSFER, WAITING, STEP, PHASES } phase;

typedef struct phase_clock {
  double seconds[PHASES];
  double last;
} phase_clock;

double seconds_now(void);
void clock_begin(phase_clock *c);
/* The time since the last call was this phase's. */
void clock_lap(phase_clock *c, phase p);

#endif
