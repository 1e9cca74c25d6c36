// SPDX-License-Identifier: Apache-2.0
// Random configurations, nearly all of them legal.
#pragma once

#include <string>

#include "tests/fuzz/api/bytes.h"

namespace otr_fuzz {

struct Configuration {
  std::string text;
  const char* compute;  // dtype of published parameters and slots
};

Configuration draw_configuration(Bytes& bytes);
std::string draw_optimizer(Bytes& bytes);

}  // namespace otr_fuzz
