// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "command.h"
#include "outrigger.h"
#include "text.h"

namespace outrigger::tools {

Command add_version(CLI::App& app, bool& json) {
  CLI::App* version = app.add_subcommand("version", "Tell the version of tool and library");
  version->add_flag("--json", json, "As JSON");
  const auto run = [](const Call& call) {
    if (call.json) {
      write_text("{}\n", nlohmann::ordered_json::parse(otr_build_info()).dump(2));
    } else {
      write_text("outrigger {} (ABI {})\n{}\n", otr_version(), otr_abi_version(), otr_build_info());
    }
    return 0;
  };
  return {version, run};
}

}  // namespace outrigger::tools
