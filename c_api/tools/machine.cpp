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

namespace {

std::string unknown(const Json& machine, const std::string& path) {
  return format_text("unknown ({})", reason_at(machine, path));
}

std::string text_at(const Json& machine, const std::string& path) {
  const Json& value = machine[Json::json_pointer(path)];
  return value.is_string() ? value.get<std::string>() : unknown(machine, path);
}

std::string number_text(const Json& machine, const std::string& path) {
  const auto number = number_at(machine, path);
  return number ? std::to_string(*number) : unknown(machine, path);
}

std::string size_text(const Json& machine, const std::string& path) {
  const auto bytes = number_at(machine, path);
  return bytes ? bytes_text(*bytes) : unknown(machine, path);
}

// The parts of a list, each in words; "none", or why there is no list.
template <typename Part>
std::string list_text(const Json& machine, const std::string& path, const Part& part) {
  const Json& list = machine[Json::json_pointer(path)];
  if (!list.is_array()) return unknown(machine, path);
  std::string text;
  for (const Json& element : list) text += (text.empty() ? "" : ", ") + part(element);
  return text.empty() ? "none" : text;
}

std::string cores(const Json& machine) {
  std::string text =
      format_text("{} of {} online ({})", number_text(machine, "/cores/allowed"),
                  number_text(machine, "/cores/online"), text_at(machine, "/cores/allowed_list"));
  const Json& limit = machine["cores"]["cgroup_limit"];
  if (limit.is_number()) text += format_text(", the time of {:.3g}", limit.get<double>());
  return text;
}

std::string cache(const Json& c) {
  return format_text(
      "{} × L{} {} {}{}", c["count"].dump(), c["level"].dump(),
      bytes_text(c["bytes"].get<uint64_t>()), c["kind"].get<std::string>(),
      c["shared_by"] == 1 ? "" : format_text(" for {} cores", c["shared_by"].dump()));
}

std::string node(const Json& n) {
  const auto cores = n["cores"].get<std::string>();
  return format_text("node {}: {} ({})", n["node"].dump(), size_text(n, "/total_bytes"),
                     cores.empty() ? "no cores" : "cores " + cores);
}

std::string memory(const Json& machine) {
  const auto usable = number_at(machine, "/memory/usable_bytes");
  return format_text("{} of {} usable{}", size_text(machine, "/memory/usable_bytes"),
                     size_text(machine, "/memory/total_bytes"),
                     usable ? format_text(" ({})", text_at(machine, "/memory/usable_source")) : "");
}

std::string huge_pages(const Json& machine) {
  return format_text("transparent {}, shared {}; reserved: {}",
                     text_at(machine, "/huge_pages/transparent"),
                     text_at(machine, "/huge_pages/transparent_shared"),
                     list_text(machine, "/huge_pages/explicit", [](const Json& size) {
                       return format_text("{} × {}", number_text(size, "/total"),
                                          bytes_text(size["page_bytes"].get<uint64_t>()));
                     }));
}

std::string shared_memory(const Json& machine) {
  const auto word = [&](const std::string& path) {
    return machine[Json::json_pointer(path)] == true
               ? "yes"
               : format_text("no ({})", reason_at(machine, path));
  };
  return format_text("memfd {}, pidfd {}; /dev/shm {}, {} free", word("/shared_memory/memfd"),
                     word("/shared_memory/pidfd"),
                     size_text(machine, "/shared_memory/dev_shm_bytes"),
                     size_text(machine, "/shared_memory/dev_shm_free_bytes"));
}

std::string plugin(const Json& found) {
  if (!found["error"].is_null()) {
    return format_text("{}: {}", text_at(found, "/path"), text_at(found, "/error"));
  }
  return format_text("{} ({} devices)", text_at(found, "/name"), found["devices"].dump());
}

// Where memory is bound to some of the nodes. A document of an earlier version does not tell.
std::string binding_text(const Json& machine) {
  const Json::json_pointer at("/memory_binding");
  if (!machine.contains(at) || !machine[at].value("binds", false)) return "";
  return "; memory here comes from " + machine[at]["nodes"].dump();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> machine_lines(const Json& machine) {
  const auto word = [](const Json& text) { return text.get<std::string>(); };
  const auto locked = number_at(machine, "/locked_memory/soft_bytes");
  return {{"outrigger",
           format_text("{} (ABI {})", text_at(machine, "/version"), machine["abi"].dump())},
          {"cores", cores(machine)},
          {"caches", list_text(machine, "/caches", cache)},
          {"NUMA nodes", list_text(machine, "/numa_nodes", node) + binding_text(machine)},
          {"memory", memory(machine)},
          {"huge pages", huge_pages(machine)},
          {"locked memory", locked ? bytes_text(*locked) + " allowed"
                                   : reason_at(machine, "/locked_memory/soft_bytes")},
          {"shared memory", shared_memory(machine)},
          {"instructions", format_text("{} of {}", text_at(machine, "/instruction_sets/used"),
                                       list_text(machine, "/instruction_sets/found", word))},
          {"communicators", list_text(machine, "/communicators", word)},
          {"plugins", list_text(machine, "/plugins", plugin)}};
}

}  // namespace outrigger::tools
