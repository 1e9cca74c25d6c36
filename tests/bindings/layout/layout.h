/* SPDX-License-Identifier: Apache-2.0
 * The lines that layout.c prints about each declaration of outrigger.h. */
#ifndef OTR_TESTS_LAYOUT_H
#define OTR_TESTS_LAYOUT_H

#include <stddef.h>
#include <stdio.h>

/* What a parameter is to a calling convention; any pointer is "p". */
#define KIND_NAME(type) \
  _Generic((type){0},   \
      int32_t: "i32",   \
      uint32_t: "u32",  \
      int64_t: "i64",   \
      uint64_t: "u64",  \
      double: "f64",    \
      default: "p")

#define CONSTANT(name) fprintf(out, "constant %s %lld\n", #name, (long long)(name))
#define SIZE(type) fprintf(out, "size %s %zu\n", #type, sizeof(type))
#define OFFSET(type, field) fprintf(out, "offset %s %s %zu\n", #type, #field, offsetof(type, field))
#define BEGIN(function) ((void)is_##function, fprintf(out, "signature %s", #function))
#define KIND(type) fprintf(out, " %s", KIND_NAME(type))
#define END(type) fprintf(out, " -> %s\n", KIND_NAME(type))
#define END_VOID() fprintf(out, " -> void\n")

void layout_print(FILE* out);

#endif /* OTR_TESTS_LAYOUT_H */
