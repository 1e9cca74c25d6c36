/* SPDX-License-Identifier: Apache-2.0
 * What this program does with errors: say what happened on which rank, and end.
 */
#ifndef GPT_CHECK_H
#define GPT_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* Runs a function of outrigger.h; any status but OTR_OK ends the program with the library's text.
 * The other ranks then get OTR_E_PEER_DEAD from their next collective call, with this rank's
 * number. */
#define TRY(call) check_status((call), #call)

void check_status(int32_t status, const char *call);

/* Ends the program with a message in printf's manner. */
void die(const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 1, 2), noreturn))
#endif
    ;

/* calloc that does not return NULL. */
void *allocate(int64_t count, size_t size);

/* The whole file, NUL-terminated; the caller frees it. out_size may be NULL. */
char *read_file(const char *path, int64_t *out_size);

#endif
