// SPDX-License-Identifier: Apache-2.0
// The configuration reader under libFuzzer.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/config/mutate.h"
#include "tests/fuzz/config/properties.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const otr_fuzz::Verdict verdict = otr_fuzz::check_configuration(text);
  if (!verdict.broken.empty()) {
    std::fprintf(stderr, "broken: %s\n", verdict.broken.c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  otr_fuzz::Random random(seed);
  if (otr_fuzz::below(random, 2) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string changed = otr_fuzz::mutate({reinterpret_cast<const char*>(data), size}, random);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
