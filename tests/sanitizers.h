// SPDX-License-Identifier: Apache-2.0
// What a sanitizer changes for tests.
#pragma once

namespace outrigger::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Whether the combination of these runs; each is a place in a list. Under a sanitizer, where a test
// takes ten times as long, one in three does: where a list has three places or more, every place of
// another one meets some of it.
template <typename... Numbers>
constexpr bool runs(Numbers... numbers) {
  return !kSanitized || (static_cast<int>(numbers) + ...) % 3 == 0;
}

// How often a loop over random input goes round, or how long a list is: under a sanitizer a fifth.
constexpr int rounds(int number) { return kSanitized ? number / 5 : number; }

}  // namespace outrigger::test
