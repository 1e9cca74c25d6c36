/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages for the languages of plain.i: names beside tensors, and results as tensors. */
#ifndef OUTRIGGER_SWIG_PLAIN_MESSAGE_H
#define OUTRIGGER_SWIG_PLAIN_MESSAGE_H

#include "plain.h"

/* What a message is made of. It refers to the tensors: who fills it keeps them. */
typedef struct otr_swig_named {
  int64_t count;
  char** names;
  otr_tensor* tensors;
} otr_swig_named;

static void otr_swig_named_free(otr_swig_named* self) {
  for (int64_t i = 0; i < self->count; i++) free(self->names[i]);
  free(self->names);
  free(self->tensors);
  free(self);
}

static void otr_swig_append_named(otr_swig_named* self, const char* name, const otr_tensor* tensor,
                                  int32_t* status) {
  if (!otr_swig_given(name, "the tensor's name", status)) return;
  if (!tensor) {
    otr_swig_refuse(status, OTR_E_ARGUMENT, "the tensor \"%s\" is nothing", name);
    return;
  }
  if (!otr_swig_readable(tensor, name, status)) return;
  const size_t more = (size_t)self->count + 1;
  char** names = (char**)realloc(self->names, more * sizeof *names);
  if (names) self->names = names;
  otr_tensor* tensors = (otr_tensor*)realloc(self->tensors, more * sizeof *tensors);
  if (tensors) self->tensors = tensors;
  char* own = strdup(name);
  if (!names || !tensors || !own) {
    free(own);
    otr_swig_no_memory(status);
    return;
  }
  names[self->count] = own;
  tensors[self->count++] = *tensor;
}

/* The bytes of a message, in memory of their own. */
static otr_tensor* otr_swig_pack(const otr_swig_named* tensors, const otr_message_options* options,
                                 int32_t* status) {
  size_t size = 0;
  const int64_t count = tensors ? tensors->count : 0;
  const char* const* names = tensors ? (const char* const*)tensors->names : NULL;
  const otr_tensor* items = tensors ? tensors->tensors : NULL;
  *status = otr_message_pack(names, items, count, options, NULL, &size);
  if (*status != OTR_OK) return NULL;
  const int64_t shape[1] = {(int64_t)size};
  otr_tensor* made = otr_swig_tensor_over(NULL, 0, "uint8", shape, 1, OTR_SWIG_WRITABLE, status);
  if (!made) return NULL;
  *status = otr_message_pack(names, items, count, options, made->data, &size);
  if (*status == OTR_OK) return made;
  otr_swig_close(made);
  free(made);
  return NULL;
}

/* A row of int64 for each route: source, target, source_row, target_row, rows. */
static otr_tensor* otr_swig_routes(const int64_t* source_rows, int64_t sources,
                                   const int64_t* target_rows, int64_t targets, int32_t* status) {
  int64_t count = 0;
  *status = otr_message_routes(source_rows, (int32_t)sources, target_rows, (int32_t)targets, NULL,
                               &count);
  if (*status != OTR_OK) return NULL;
  otr_message_route* routes =
      (otr_message_route*)calloc((size_t)count + 1, sizeof(otr_message_route));
  if (!routes) {
    otr_swig_no_memory(status);
    return NULL;
  }
  *status = otr_message_routes(source_rows, (int32_t)sources, target_rows, (int32_t)targets, routes,
                               &count);
  const int64_t shape[2] = {count, 5};
  otr_tensor* made =
      *status == OTR_OK ? otr_swig_tensor_over(NULL, 0, "int64", shape, 2, 0, status) : NULL;
  for (int64_t i = 0; made && i < count; i++) {
    const int64_t row[5] = {routes[i].source, routes[i].target, routes[i].source_row,
                            routes[i].target_row, routes[i].rows};
    memcpy((int64_t*)made->data + 5 * i, row, sizeof row);
  }
  free(routes);
  return made;
}

#endif /* OUTRIGGER_SWIG_PLAIN_MESSAGE_H */
