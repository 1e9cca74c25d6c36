/* SPDX-License-Identifier: Apache-2.0
 * Numbers as their exact bit patterns. */
#ifndef OTR_TESTS_SCENARIO_PRINT_H
#define OTR_TESTS_SCENARIO_PRINT_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "outrigger.h"

static inline void print_double(FILE* out, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  fprintf(out, " %016" PRIx64, bits);
}

/* Elements of 2 or 4 bytes. */
static inline void print_bits(FILE* out, const void* data, int32_t bits, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (bits == 16) {
      fprintf(out, " %04" PRIx16, ((const uint16_t*)data)[i]);
    } else {
      fprintf(out, " %08" PRIx32, ((const uint32_t*)data)[i]);
    }
  }
  fprintf(out, "\n");
}

static inline void print_shape(FILE* out, int32_t ndim, const int64_t* shape) {
  fprintf(out, " [");
  for (int32_t d = 0; d < ndim; d++) fprintf(out, "%s%" PRId64, d == 0 ? "" : ",", shape[d]);
  fprintf(out, "]");
}

static inline int64_t element_count(int32_t ndim, const int64_t* shape) {
  int64_t count = 1;
  for (int32_t d = 0; d < ndim; d++) count *= shape[d];
  return count;
}

/* A row-major tensor. */
static inline void print_tensor(FILE* out, const otr_tensor* tensor) {
  print_shape(out, tensor->ndim, tensor->shape);
  print_bits(out, (const char*)tensor->data + tensor->byte_offset, tensor->dtype.bits,
             element_count(tensor->ndim, tensor->shape));
}

static inline void print_report(FILE* out, const otr_step_report* r) {
  fprintf(out, " outcome %" PRId32 " reason %" PRId32 " nonfinite_rank %" PRId32, r->outcome,
          r->reason, r->nonfinite_rank);
  fprintf(out, " nonfinite_param %" PRId64 " nonfinite_count %" PRId64, r->nonfinite_param,
          r->nonfinite_count);
  fprintf(out, " micro_steps %" PRId64 " applied_steps %" PRId64 " skipped_steps %" PRId64,
          r->micro_steps, r->applied_steps, r->skipped_steps);
  fprintf(out, " grad_norm");
  print_double(out, r->grad_norm);
  fprintf(out, " clip_coefficient");
  print_double(out, r->clip_coefficient);
  fprintf(out, " loss_scale");
  print_double(out, r->loss_scale);
  fprintf(out, " lr");
  print_double(out, r->lr);
  fprintf(out, " updates %" PRId64 " vanished %" PRId64 "\n", r->updates, r->vanished);
}

#endif /* OTR_TESTS_SCENARIO_PRINT_H */
