// SPDX-License-Identifier: Apache-2.0
// The reader of safetensors files under libFuzzer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/safetensors/mutate.h"
#include "tests/fuzz/safetensors/properties.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const otr_fuzz_safetensors::Verdict verdict = otr_fuzz_safetensors::check_file(file);
  if (!verdict.broken.empty()) {
    std::fprintf(stderr, "broken: %s\n", verdict.broken.c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using namespace otr_fuzz_safetensors;  // NOLINT(google-build-using-namespace)
  Random random(seed);
  if (below(random, 3) == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string file(reinterpret_cast<const char*>(data), size);
  if (below(random, 50) == 0) file = seeds()[below(random, seeds().size())];
  const std::string changed = mutate(file, random);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
