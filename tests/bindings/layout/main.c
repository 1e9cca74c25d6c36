/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

int main(void) {
  layout_print(stdout);
  return fflush(stdout) == 0 ? 0 : 1;
}
