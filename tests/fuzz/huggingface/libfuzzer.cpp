// SPDX-License-Identifier: Apache-2.0
// The import of a Hugging Face model's folder under libFuzzer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/huggingface/properties.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace otr_fuzz_huggingface;  // NOLINT(google-build-using-namespace)
  const Verdict verdict = check(model_of({reinterpret_cast<const char*>(data), size}));
  if (!verdict.broken.empty()) {
    std::fprintf(stderr, "broken: %s\n", verdict.broken.c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using namespace otr_fuzz_huggingface;  // NOLINT(google-build-using-namespace)
  Random random(seed);
  if (below(random, 10) == 0) return LLVMFuzzerMutate(data, size, max_size);
  Model model = model_of({reinterpret_cast<const char*>(data), size});
  if (model[0].empty() || below(random, 20) == 0) model = seeds()[below(random, seeds().size())];
  const std::string changed = text_of(mutate(model, random));
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
