// SPDX-License-Identifier: Apache-2.0
// Messages under libFuzzer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/message/properties.h"
#include "tests/fuzz/safetensors/mutate.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const otr_fuzz_message::Verdict verdict = otr_fuzz_message::check_message(bytes);
  if (!verdict.broken.empty()) {
    std::fprintf(stderr, "broken: %s\n", verdict.broken.c_str());
    std::abort();
  }
  return 0;
}

// A message is a safetensors file.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  otr_fuzz_safetensors::Random random(seed);
  if (otr_fuzz_safetensors::below(random, 3) == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto& seeds = otr_fuzz_message::seeds();
  if (bytes.size() < 8 || otr_fuzz_safetensors::below(random, 50) == 0) {
    bytes = seeds[otr_fuzz_safetensors::below(random, seeds.size())];
  }
  const std::string changed = otr_fuzz_safetensors::mutate(bytes, random);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
