/* SPDX-License-Identifier: Apache-2.0 */
#include "weights_float64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

struct weight_store {
  int64_t count, total;
  stored_parameter parameter[256];
};

weight_store* weights_create(otr_engine* engine) {
  (void)engine;
  return allocate(1, sizeof(weight_store));
}

void weights_destroy(weight_store* w) {
  for (int64_t i = 0; i < w->count; i++) {
    free(w->parameter[i].value);
    free(w->parameter[i].gradient);
  }
  free(w);
}

int64_t weights_declare(weight_store* w, const char* name, const real* initial, int64_t rows,
                        int64_t columns, int32_t contributions) {
  stored_parameter* p = &w->parameter[w->count];
  if (w->count == 256) die("too many parameters for the test");
  snprintf(p->name, sizeof p->name, "%s", name);
  p->elements = rows * (columns > 0 ? columns : 1);
  p->contributions = contributions;
  p->value = allocate(p->elements, sizeof(real));
  p->gradient = allocate(p->elements, sizeof(real));
  memcpy(p->value, initial, (size_t)p->elements * sizeof(real));
  w->total += p->elements;
  return w->count++;
}

int64_t weights_total(const weight_store* w) { return w->total; }
void weights_ready(weight_store* w) { (void)w; }
int64_t weights_count(const weight_store* w) { return w->count; }
stored_parameter* weights_at(weight_store* w, int64_t id) { return &w->parameter[id]; }

void weights_acquire(weight_store* w, const int64_t* ids, int count, const real** values) {
  for (int i = 0; i < count; i++) {
    values[i] = w->parameter[ids[i]].value;
    w->parameter[ids[i]].acquired++;
  }
}

void weights_release(weight_store* w, const int64_t* ids, int count) {
  for (int i = 0; i < count; i++) w->parameter[ids[i]].acquired--;
}

/* Uninitialised places hold NaN here: a gradient that is not written in full shows. */
real* gradient_place(weight_store* w, otr_pass* pass, int64_t id) {
  (void)pass;
  stored_parameter* p = &w->parameter[id];
  real* place = allocate(p->elements, sizeof(real));
  for (int64_t i = 0; i < p->elements; i++) place[i] = (real)NAN;
  p->places++;
  return place;
}

void gradient_hand_over(weight_store* w, otr_pass* pass, int64_t id, real* place) {
  (void)pass;
  stored_parameter* p = &w->parameter[id];
  for (int64_t i = 0; i < p->elements; i++) p->gradient[i] += place[i];
  p->handed_over++;
  p->places--;
  free(place);
}

void weights_clear(weight_store* w) {
  for (int64_t i = 0; i < w->count; i++) {
    stored_parameter* p = &w->parameter[i];
    memset(p->gradient, 0, (size_t)p->elements * sizeof(real));
    p->handed_over = 0;
  }
}
