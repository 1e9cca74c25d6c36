/* SPDX-License-Identifier: Apache-2.0
 * What a rank takes of the data, and what part of a micro-batch that is.
 */
#include "job.h"

void take_strips(job *j, int64_t number, int is_held_out, vision *look) {
  digits_strips(&j->digits, is_held_out, number * j->o.strips + j->first, j->strips,
                (int)j->o.length, look->pixels, NULL);
}

void take_words(job *j, int64_t number, int is_held_out) {
  digits_strips(&j->digits, is_held_out, number * j->o.strips + j->first, j->strips,
                (int)j->o.length, NULL, j->words);
}

double part_of_strips(const job *j) { return (double)j->strips / (double)j->o.strips; }

double factor_of_mean(const job *j) { return part_of_strips(j) * (double)j->o.language.ranks; }
