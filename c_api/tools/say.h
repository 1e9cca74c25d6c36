// SPDX-License-Identifier: Apache-2.0
// Messages on standard error. A full disk or a closed descriptor loses the message, never the job.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include "text.h"

namespace outrigger::tools {

template <typename... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  const std::string line = format_text(text, std::forward<Args>(args)...);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace outrigger::tools
