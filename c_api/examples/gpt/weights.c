/* SPDX-License-Identifier: Apache-2.0 */
#include "weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { MAX_PARAMETERS = 1024, MAX_ACQUIRED = 16 };

struct weight_store {
  otr_engine *engine;
  int64_t count; /* ids are 0 … count − 1, in the order of declaration */
  int64_t total;
  int slots_are_float32;
  struct {
    int32_t ndim;
    int64_t shape[2];
    int64_t elements;
  } parameter[MAX_PARAMETERS];
};

static const otr_call_info as_float32 = {.struct_size = sizeof(otr_call_info),
                                         .flags = OTR_ACQUIRE_FLOAT32};

weight_store *weights_create(otr_engine *engine) {
  weight_store *w = allocate(1, sizeof *w);
  w->engine = engine;
  return w;
}

void weights_destroy(weight_store *w) { free(w); }

int64_t weights_declare(weight_store *w, const char *name, const real *initial, int64_t rows,
                        int64_t columns, int32_t contributions) {
  if (w->count == MAX_PARAMETERS) die("more than %d parameters", MAX_PARAMETERS);
  int64_t *shape = w->parameter[w->count].shape;
  int32_t ndim = columns > 0 ? 2 : 1;
  w->parameter[w->count].ndim = ndim;
  shape[0] = rows;
  shape[1] = columns;

  otr_tensor tensor;
  /* The library only reads initial values; otr_tensor is DLPack's layout, which knows no const. */
  TRY(otr_tensor_init((void *)initial, "float32", ndim, shape, &tensor));
  otr_param_options options;
  TRY(otr_param_options_init(&options, sizeof options));
  options.contributions = contributions;
  int64_t id = 0;
  TRY(otr_engine_add_parameter(w->engine, name, &tensor, &options, &id));
  w->parameter[w->count].elements = rows * (columns > 0 ? columns : 1);
  w->total += w->parameter[w->count++].elements;
  return id;
}

int64_t weights_total(const weight_store *w) { return w->total; }

void weights_acquire(weight_store *w, const int64_t *ids, int count, const real **values) {
  otr_tensor tensors[MAX_ACQUIRED];
  if (count > MAX_ACQUIRED) die("%d weights acquired at once; at most %d", count, MAX_ACQUIRED);
  TRY(otr_engine_acquire(w->engine, ids, count, &as_float32, tensors));
  for (int i = 0; i < count; i++) {
    values[i] = (const real *)((const char *)tensors[i].data + tensors[i].byte_offset);
  }
}

void weights_release(weight_store *w, const int64_t *ids, int count) {
  TRY(otr_engine_release(w->engine, ids, count, &as_float32));
}

/* What acquire shows without widening is what gradients are reduced in. */
void weights_ready(weight_store *w) {
  int64_t first = 0;
  otr_tensor tensor;
  TRY(otr_engine_acquire(w->engine, &first, 1, NULL, &tensor));
  w->slots_are_float32 = tensor.dtype.code == OTR_DTYPE_FLOAT && tensor.dtype.bits == 32;
  TRY(otr_engine_release(w->engine, &first, 1, NULL));
}

static void describe(weight_store *w, int64_t id, float *values, otr_tensor *out) {
  TRY(otr_tensor_init(values, "float32", w->parameter[id].ndim, w->parameter[id].shape, out));
}

void weights_load(weight_store *w, const char *path, int32_t rank) {
  const int64_t bytes = w->total * (int64_t)sizeof(float);
  int64_t size = bytes;
  float *values = rank == 0 ? (float *)read_file(path, &size) : allocate(bytes, 1);
  if (size != bytes) die("%s holds %lld bytes, not %lld", path, (long long)size, (long long)bytes);
  float *next = values;
  for (int64_t id = 0; id < w->count; id++) {
    otr_tensor tensor;
    describe(w, id, next, &tensor);
    TRY(otr_engine_parameter_write(w->engine, id, OTR_VALUE_MASTER, &tensor));
    next += w->parameter[id].elements;
  }
  free(values);
}

void weights_save(weight_store *w, const char *path, int32_t rank) {
  float *values = allocate(w->total, sizeof *values), *next = values;
  for (int64_t id = 0; id < w->count; id++) {
    otr_tensor tensor;
    describe(w, id, next, &tensor);
    TRY(otr_engine_parameter_read(w->engine, id, OTR_VALUE_MASTER, &tensor));
    next += w->parameter[id].elements;
  }
  if (rank == 0) {
    FILE *file = fopen(path, "wb");
    size_t count = (size_t)w->total;
    int written = file != NULL && fwrite(values, sizeof *values, count, file) == count;
    if (file == NULL || fclose(file) != 0 || !written) {
      die("cannot write %s: %s", path, strerror(errno));
    }
  }
  free(values);
}

/* A slot is the gradient's own place in the communication bucket. Where it holds float32, the
 * matrix product writes straight into it; else the product gets memory of our own, and the library
 * converts. */
real *gradient_place(weight_store *w, otr_pass *pass, int64_t id) {
  if (!w->slots_are_float32) return allocate(w->parameter[id].elements, sizeof(real));
  otr_tensor slot;
  TRY(otr_pass_get_slot(pass, id, &slot));
  return (real *)((char *)slot.data + slot.byte_offset);
}

void gradient_hand_over(weight_store *w, otr_pass *pass, int64_t id, real *place) {
  otr_tensor gradient;
  TRY(otr_tensor_init(place, "float32", w->parameter[id].ndim, w->parameter[id].shape, &gradient));
  TRY(otr_pass_add_grad(pass, id, &gradient, NULL));
  if (!w->slots_are_float32) free(place);
}
