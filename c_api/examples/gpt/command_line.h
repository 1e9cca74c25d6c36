/* SPDX-License-Identifier: Apache-2.0
 * Options of a program, as a table.
 */
#ifndef GPT_COMMAND_LINE_H
#define GPT_COMMAND_LINE_H

#include <stddef.h>

/* One option: the pointer that is not NULL says of which kind it is, and where its value goes. */
typedef struct option {
  const char *name, *help;
  const char **text;
  const char *const *legal; /* of a text; NULL: any */
  long *whole;
  double *number;
  long least, most; /* of a number; most 0: no limit */
  int *flag;
} option;

/* Ends the program with a text on a bad command line, and on --help with what it is for and all
 * options. */
void command_line_parse(const char *purpose, const option *table, size_t count, int argc,
                        char **argv);

#endif
