// SPDX-License-Identifier: Apache-2.0
// The same programs under libFuzzer, which chooses the bytes.
#include "tests/fuzz/api/program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  otr_fuzz::run_program({data, size}, 0.5);
  return 0;
}
