// SPDX-License-Identifier: Apache-2.0
#include "config_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>

#include "files.h"
#include "outrigger.h"
#include "say.h"

namespace outrigger::tools {
int check_config(const std::string& file, int world) {
  const std::string text = file == "-" ? read_all(std::cin) : read_file(file);
  size_t size = 0;
  int32_t status = otr_config_check(text.c_str(), world, nullptr, &size);
  std::string effective(size, '\0');
  if (status == OTR_OK || status == OTR_E_BUFFER_SIZE) {
    status = otr_config_check(text.c_str(), world, effective.data(), &size);
  }
  if (status != OTR_OK) {
    say("{}: {}: {}\n", file, otr_status_name(status), otr_last_error_message());
    return 1;
  }
  fmt::print("{}\n", effective.c_str());
  return 0;
}

}  // namespace outrigger::tools
