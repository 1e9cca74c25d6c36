/* SPDX-License-Identifier: Apache-2.0 */
#include "digits.h"

#include <stdlib.h>

#include "../gpt/check.h"
#include "../gpt/random.h"

enum { SIDE = 8, PATCH_COLUMNS = SIDE / PATCHES_OF_DIGIT, SCAN = 1 + SIDE * SIDE, FULL = 16 };

enum { GLYPH_ROWS = 7, GLYPH_COLUMNS = 5 };
static const char kFont[10][GLYPH_ROWS][GLYPH_COLUMNS + 1] = {
    {" ### ", "#   #", "#   #", "#   #", "#   #", "#   #", " ### "},
    {"  #  ", " ##  ", "# #  ", "  #  ", "  #  ", "  #  ", "#####"},
    {" ### ", "#   #", "    #", "   # ", "  #  ", " #   ", "#####"},
    {" ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### "},
    {"   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "},
    {"#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "},
    {"  ## ", " #   ", "#    ", "#### ", "#   #", "#   #", " ### "},
    {"#####", "    #", "   # ", "   # ", "  #  ", "  #  ", "  #  "},
    {" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "},
    {" ### ", "#   #", "#   #", " ####", "    #", "   # ", " ##  "}};

digits digits_open(const char *path, uint64_t seed) {
  digits d = {NULL, 0, seed};
  if (path == NULL) return d;
  int64_t size = 0;
  d.scans = (unsigned char *)read_file(path, &size);
  d.count = size / SCAN;
  if (size % SCAN != 0 || d.count < 10) {
    die("%s has %lld bytes; it needs %d for each scan, and 10 scans", path, (long long)size, SCAN);
  }
  for (int64_t i = 0; i < size; i++) {
    const int most = i % SCAN == 0 ? 9 : FULL;
    if (d.scans[i] > most) {
      die("%s: byte %lld is %d, and at most %d is legal", path, (long long)i, d.scans[i], most);
    }
  }
  return d;
}

void digits_close(digits *d) { free(d->scans); }

/* A whole number below `limit`. */
static int64_t draw(random_stream *stream, int64_t limit) {
  return (int64_t)(random_uniform(stream) * (double)limit);
}

/* Draws a digit of the font somewhere in its square, with ink of some strength, and noise. */
static int draw_digit(random_stream *stream, real square[SIDE][SIDE]) {
  const int shown = (int)draw(stream, 10);
  const int down = (int)draw(stream, SIDE - GLYPH_ROWS + 1);
  const int right = (int)draw(stream, SIDE - GLYPH_COLUMNS + 1);
  const double ink = 0.6 + 0.4 * random_uniform(stream);
  for (int r = 0; r < SIDE; r++) {
    for (int c = 0; c < SIDE; c++) {
      const int y = r - down, x = c - right;
      const int is_ink =
          y >= 0 && y < GLYPH_ROWS && x >= 0 && x < GLYPH_COLUMNS && kFont[shown][y][x] == '#';
      square[r][c] = (real)(is_ink * ink + 0.15 * random_normal(stream));
    }
  }
  return shown;
}

static int take_scan(const digits *d, int is_held_out, random_stream *stream,
                     real square[SIDE][SIDE]) {
  const int64_t held_out = d->count / 5, trained = d->count - held_out;
  const int64_t which = is_held_out ? trained + draw(stream, held_out) : draw(stream, trained);
  const unsigned char *scan = d->scans + which * SCAN;
  for (int i = 0; i < SIDE * SIDE; i++) {
    square[i / SIDE][i % SIDE] = (real)scan[1 + i] / (real)FULL;
  }
  return scan[0];
}

void digits_strips(const digits *d, int is_held_out, int64_t first, int count, int length,
                   real *pixels, int *words) {
  for (int64_t i = 0; i < (int64_t)count * length; i++) {
    const int64_t number = first * length + i;
    random_stream stream = random_start(d->seed, is_held_out ? 2 : 1, (uint64_t)number);
    real square[SIDE][SIDE];
    const int shown =
        d->scans == NULL ? draw_digit(&stream, square) : take_scan(d, is_held_out, &stream, square);
    if (words != NULL) words[i] = shown;
    if (pixels == NULL) continue;
    for (int r = 0; r < SIDE; r++) {
      for (int c = 0; c < SIDE; c++) {
        const int64_t patch = i * PATCHES_OF_DIGIT + c / PATCH_COLUMNS;
        const int pixel = r * PATCH_COLUMNS + c % PATCH_COLUMNS;
        pixels[patch * PATCH_PIXELS + pixel] = square[r][c];
      }
    }
  }
}
