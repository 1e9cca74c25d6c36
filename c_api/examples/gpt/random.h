/* SPDX-License-Identifier: Apache-2.0
 * Random numbers that depend on nothing but a key: the n-th number of a stream is a function of
 * (key, n), so any rank can draw any of them.
 */
#ifndef GPT_RANDOM_H
#define GPT_RANDOM_H

#include <stdint.h>

typedef struct random_stream {
  uint64_t key;
  uint64_t position;
} random_stream;

random_stream random_start(uint64_t seed, uint64_t purpose, uint64_t index);
uint64_t random_bits(random_stream *stream);
double random_uniform(random_stream *stream); /* [0, 1) */
double random_normal(random_stream *stream);  /* mean 0, standard deviation 1 */

#endif
