/* SPDX-License-Identifier: Apache-2.0
 * Strips of digits. What a strip shows follows from its number, so that every rank can make it, and
 * a training that is resumed gets the strips that it would have got.
 */
#ifndef MULTIMODAL_DIGITS_H
#define MULTIMODAL_DIGITS_H

#include "weights.h"

/* A digit has 8 × 8 pixels; a patch has 4 columns of them. */
enum { PATCHES_OF_DIGIT = 2, PATCH_PIXELS = 32 };

/* Scans of a file, or a built-in font, whose digits are shifted and get noise. */
typedef struct digits {
  unsigned char *scans; /* NULL: the font */
  int64_t count;
  uint64_t seed;
} digits;

/* path: NULL, or a file of 65 bytes for each scan: the digit that it shows, 0 to 9, and its pixels
 * row by row, 0 to 16. The last fifth of the scans is held out. */
digits digits_open(const char *path, uint64_t seed);
void digits_close(digits *d);

/* Makes strips number `first` and following. pixels: [count][patches][PATCH_PIXELS], row by row in
 * a patch; words: [count][length], what they show; either may be NULL. */
void digits_strips(const digits *d, int is_held_out, int64_t first, int count, int length,
                   real *pixels, int *words);

#endif
