// SPDX-License-Identifier: Apache-2.0
// The readers of a checkpoint's folder under libFuzzer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/checkpoint/mutate.h"
#include "tests/fuzz/checkpoint/properties.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace otr_fuzz_checkpoint;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Verdict verdict = check(bundle_of(text));
  if (!verdict.broken.empty()) {
    std::fprintf(stderr, "broken: %s\n", verdict.broken.c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using namespace otr_fuzz_checkpoint;  // NOLINT(google-build-using-namespace)
  Random random(seed);
  if (below(random, 20) == 0) return LLVMFuzzerMutate(data, size, max_size);
  Bundle bundle = bundle_of({reinterpret_cast<const char*>(data), size});
  if (bundle[kManifest].empty() || below(random, 10) == 0) {
    bundle = seeds()[below(random, seeds().size())];
  }
  const std::string changed = text_of(mutate(bundle, random));
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
