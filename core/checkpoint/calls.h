// SPDX-License-Identifier: Apache-2.0
// What a system call's result becomes: tried again, or an Error. Private to this folder.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <string>
#include <string_view>

namespace outrigger::checkpoint {

// result: −errno
[[noreturn]] void fail_call(const std::string& path, std::string_view operation, ssize_t result);

template <typename Call>
[[nodiscard]] auto repeat_interrupted(const Call& call) {
  auto result = call();
  while (result == -EINTR) result = call();
  return result;
}

template <typename Call>
void require(const std::string& path, std::string_view operation, const Call& call) {
  const auto result = repeat_interrupted(call);
  if (result < 0) fail_call(path, operation, result);
}

}  // namespace outrigger::checkpoint
