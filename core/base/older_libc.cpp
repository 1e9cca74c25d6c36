// SPDX-License-Identifier: Apache-2.0
// libstdc++.a, which is linked into the library, refers to a function that glibc has from 2.36 on.
// Defined here, and hidden, it
// is no symbol that the library asks its system for: it loads with glibc 2.35, too, which Ubuntu
// 22.04 has.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept {
  uint32_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) != sizeof bits) {  // at most interrupted: it is small
  }
  return bits;
}
