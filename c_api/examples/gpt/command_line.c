/* SPDX-License-Identifier: Apache-2.0 */
#include "command_line.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void print_help(const char *purpose, const option *table, size_t count) {
  printf("%s\n", purpose);
  for (size_t i = 0; i < count; i++) {
    const option *o = &table[i];
    printf("  --%-20s %s", o->name, o->help);
    if (o->whole != NULL) printf(" (%ld)", *o->whole);
    if (o->number != NULL) printf(" (%g)", *o->number);
    if (o->text != NULL && *o->text != NULL) printf(" (%s)", *o->text);
    printf("\n");
  }
}

static void assign_text(const option *o, const char *value) {
  const char *const *legal = o->legal;
  while (legal != NULL && *legal != NULL && strcmp(*legal, value) != 0) legal++;
  if (legal != NULL && *legal == NULL) die("--%s: '%s'; legal: %s", o->name, value, o->help);
  *o->text = value;
}

static void assign_number(const option *o, const char *value) {
  const double most = o->most > 0        ? (double)o->most
                      : o->whole != NULL ? (double)INT_MAX
                                         : (double)FLT_MAX;
  char *end = NULL;
  double number = 0;
  errno = 0;
  if (o->whole != NULL) number = (double)(*o->whole = strtol(value, &end, 10));
  if (o->number != NULL) number = *o->number = strtod(value, &end);
  if (end == value || *end != '\0' || errno != 0) die("--%s: '%s' is not a number", o->name, value);
  if (!(number >= (double)o->least && number <= most)) {
    die("--%s: %s; %ld to %g is legal", o->name, value, o->least, most);
  }
}

void command_line_parse(const char *purpose, const option *table, size_t count, int argc,
                        char **argv) {
  for (int i = 1; i < argc; i++) {
    size_t k = 0;
    if (strcmp(argv[i], "--help") == 0) {
      print_help(purpose, table, count);
      exit(EXIT_SUCCESS);
    }
    while (k < count &&
           !(strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, table[k].name) == 0)) {
      k++;
    }
    if (k == count) die("unknown option '%s'; see --help", argv[i]);
    if (table[k].flag != NULL) {
      *table[k].flag = 1;
    } else if (i + 1 == argc) {
      die("%s needs a value", argv[i]);
    } else if (table[k].text != NULL) {
      assign_text(&table[k], argv[++i]);
    } else {
      assign_number(&table[k], argv[++i]);
    }
  }
}
