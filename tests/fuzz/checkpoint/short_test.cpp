// SPDX-License-Identifier: Apache-2.0
// The checkpoint fuzzer's short form: whole checkpoints, each byte changed or cut off, and changes
// from a fixed seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "tests/fuzz/checkpoint/mutate.h"
#include "tests/fuzz/checkpoint/properties.h"
#include "tests/sanitizers.h"

namespace {

// Of any thread: the largest request for memory.
std::atomic<size_t> largest{0};

// Not inlined: the compiler would find malloc's memory freed, or the other way round.
[[gnu::noinline]] void* allocate(size_t bytes) {
  size_t seen = largest.load();
  while (seen < bytes && !largest.compare_exchange_weak(seen, bytes)) {
  }
  void* memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void release(void* memory) { std::free(memory); }

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
// Else a sanitizer has one of its own, whose memory the ones below would free.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }

namespace otr_fuzz_checkpoint {
namespace {

TEST(CheckpointFuzz, SeedsAreRead) {
  for (const Bundle& seed : seeds()) {
    const Verdict verdict = check(seed);
    EXPECT_EQ(verdict.broken, "");
    EXPECT_TRUE(verdict.opened && verdict.verified && verdict.loaded);
    EXPECT_EQ(text_of(bundle_of(text_of(seed))), text_of(seed));
    Bundle sealed = seed;
    reseal(sealed);
    EXPECT_EQ(text_of(sealed), text_of(seed)) << "a seal of the fuzzer is one of the library";
  }
}

// A change of many bytes, and a cut in front of each of these; of a manifest, which is long and has
// one checksum, of fewer; under a sanitizer of every fifth. (tests/checkpoint/manifest_test.cpp
// takes each.)
constexpr size_t kFewer = outrigger::test::kSanitized ? 5 : 1;
constexpr size_t kStride = 7 * kFewer, kManifestStride = 199 * kFewer;
void expect_found(const std::function<std::string(const std::string& file, size_t at)>& damage) {
  for (const Bundle& seed : seeds()) {
    for (size_t which = kManifest; which < kFiles; ++which) {
      const std::string& file = seed.at(which);
      for (size_t at = 0; at < file.size(); at += which == kManifest ? kManifestStride : kStride) {
        Bundle bundle = seed;
        bundle.at(which) = damage(file, at);
        const Verdict verdict = check_open(bundle);
        ASSERT_EQ(verdict.broken, "") << kPaths.at(which) << " byte " << at;
        ASSERT_FALSE(verdict.verified) << kPaths.at(which) << " byte " << at;
        if (at % 1393 != 0) continue;
        ASSERT_EQ(check(bundle).broken, "") << kPaths.at(which) << " byte " << at;
      }
    }
  }
}

TEST(CheckpointFuzz, NoByteIsTakenForAnother) {
  expect_found([](std::string file, size_t at) {
    file[at] = static_cast<char>(file[at] ^ (1 << at % 8));
    return file;
  });
}

TEST(CheckpointFuzz, NoFileMayBeCut) {
  expect_found([](const std::string& file, size_t at) { return file.substr(0, at); });
}

TEST(CheckpointFuzz, MutationsGetAnAnswer) {
  Random random(20240603);
  static_cast<void>(check(seeds()[0]));  // what is made once
  largest = 0;
  int opened = 0, verified = 0, loaded = 0;
  constexpr int kRounds = outrigger::test::rounds(500);
  for (int round = 0; round < kRounds; ++round) {
    Bundle bundle = seeds()[below(random, seeds().size())];
    for (size_t i = below(random, 3) + 1; i > 0; --i) bundle = mutate(bundle, random);
    const Verdict verdict = check(bundle);
    ASSERT_EQ(verdict.broken, "") << round;
    opened += verdict.opened ? 1 : 0;
    verified += verdict.verified ? 1 : 0;
    loaded += verdict.loaded ? 1 : 0;
  }
  // The loop also reaches what lies behind the checks.
  EXPECT_GT(opened, kRounds / 10);
  EXPECT_GT(verified, kRounds / 50);
  EXPECT_GT(loaded, kRounds / 50);
  EXPECT_LT(opened, kRounds * 9 / 10);
  // No lie about a size makes anyone ask for it.
  EXPECT_LT(largest.load(), size_t{1} << 20);
  std::printf("%d opened, %d verified, %d loaded; the largest request: %zu bytes\n", opened,
              verified, loaded, largest.load());
}

}  // namespace
}  // namespace otr_fuzz_checkpoint
