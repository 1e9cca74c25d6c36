// SPDX-License-Identifier: Apache-2.0
// A plugin that moves host memory between processes (MPI); core/comm/transport.h makes
// communicators of it.
#pragma once

#include <string>

#include "outrigger_plugin.h"

namespace outrigger::device {

struct TransportPlugin {
  otr_transport_plugin table;
  std::string path;
};

// As load_plugin.
[[nodiscard]] TransportPlugin load_transport_plugin(const std::string& name);

}  // namespace outrigger::device
