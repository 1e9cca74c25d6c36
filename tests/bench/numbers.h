/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers both sides compute with; scripts/bench/peers/numbers_.py is the same in Python.
 * Element i of stream s is an odd integer in -63..63 over a power of two: exact in bfloat16, and so
 * is the sum of two of them.
 */
#ifndef OUTRIGGER_BENCH_NUMBERS_H
#define OUTRIGGER_BENCH_NUMBERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline float number_at(uint32_t stream, uint32_t i, float denominator) {
  uint32_t mixed = (i + stream * 40503u) * 2654435761u;
  mixed ^= mixed >> 15;
  mixed *= 2246822519u;
  return ((float)(mixed >> 26) * 2.0F - 63.0F) / denominator;
}

/* Exact values only: the low half is dropped. */
static inline uint16_t bf16_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static inline float float_of(uint16_t value) {
  uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

static inline void fill_float32(float* out, uint32_t stream, size_t count, float denominator) {
  for (size_t i = 0; i < count; i++) out[i] = number_at(stream, (uint32_t)i, denominator);
}

static inline void fill_bf16(uint16_t* out, uint32_t stream, size_t count, float denominator) {
  for (size_t i = 0; i < count; i++) out[i] = bf16_of(number_at(stream, (uint32_t)i, denominator));
}

/* Times a power of two, exactly. */
static inline void scale_bf16(uint16_t* values, size_t count, float factor) {
  for (size_t i = 0; i < count; i++) values[i] = bf16_of(float_of(values[i]) * factor);
}

#endif
