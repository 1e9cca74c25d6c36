/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

#include <math.h>

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);

random_stream random_start(uint64_t seed, uint64_t purpose, uint64_t index) {
  random_stream stream = {mix(mix(mix(seed + golden) ^ purpose) + golden * (index + 1)), 0};
  return stream;
}

uint64_t random_bits(random_stream *stream) {
  return mix(stream->key + golden * ++stream->position);
}

double random_uniform(random_stream *stream) {
  return (double)(random_bits(stream) >> 11) * 0x1p-53;
}

/* Box and Muller's transformation; 1 - uniform keeps the logarithm finite. */
double random_normal(random_stream *stream) {
  const double two_pi = 6.283185307179586;
  double radius = sqrt(-2.0 * log(1.0 - random_uniform(stream)));
  return radius * cos(two_pi * random_uniform(stream));
}
