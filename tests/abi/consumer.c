/* SPDX-License-Identifier: Apache-2.0
 * The smallest program that uses an installed Outrigger. */
#include <outrigger.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  otr_context *context = NULL;
  if (strcmp(otr_version(), OTR_VERSION_STRING) != 0 || otr_abi_version() != OTR_ABI_VERSION) {
    fprintf(stderr, "header %s, library %s\n", OTR_VERSION_STRING, otr_version());
    return 1;
  }
  if (otr_context_create(NULL, &context) != OTR_OK) {
    fprintf(stderr, "%s\n", otr_last_error_message());
    return 1;
  }
  otr_context_destroy(context);
  return 0;
}
