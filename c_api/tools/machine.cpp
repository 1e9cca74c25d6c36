// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <array>
#include <utility>

#include "fault.h"
#include "files.h"
#include "text.h"

namespace outrigger::tools {

Json machine_here() {
  std::string text;
  int32_t status = OTR_E_BUFFER_SIZE;
  for (int tries = 0; tries < 10 && status == OTR_E_BUFFER_SIZE; ++tries) {
    size_t size = 0;
    check(otr_machine_info(nullptr, &size));
    text.assign(size, '\0');
    status = otr_machine_info(text.data(), &size);
  }
  check(status);
  return Json::parse(text.c_str());
}

Json machine_in(const std::string& file) {
  Json json = Json::parse(read_file(file), nullptr, false);
  if (json.is_object() && json.contains("machine")) {
    Json machine = std::move(json["machine"]);  // a copy takes as much stack as the file is deep
    json = std::move(machine);
  }
  if (!json.is_object() || !json.contains("memory") || !json["memory"].is_object()) {
    fail(OTR_E_ARGUMENT,
         "{} describes no machine; write it there with outrigger doctor --json > FILE", file);
  }
  return json;
}

std::optional<uint64_t> number_at(const Json& machine, const std::string& path) {
  const Json::json_pointer at(path);
  if (!machine.contains(at)) return {};
  const Json& value = machine[at];
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  return {};
}

std::string reason_at(const Json& machine, const std::string& path) {
  const Json::json_pointer at(path + "_reason");
  if (!machine.contains(at) || !machine[at].is_string()) return "not told";
  return machine[at].get<std::string>();
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 4> units{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return format_text("{} bytes", bytes);
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return format_text("{:.{}f} {}", value, value < 100 && unit > 0 ? 1 : 0, units.at(unit));
}

}  // namespace outrigger::tools
