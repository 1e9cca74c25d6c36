// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>

#include "changes.h"
#include "command.h"
#include "estimate_report.h"
#include "fault.h"
#include "files.h"
#include "machine.h"
#include "model.h"
#include "text.h"

namespace outrigger::tools {
namespace {

struct Request {
  std::string config;   // file; empty: defaults
  std::string model;    // file, see shapes.h
  std::string machine;  // file, see machine.h
  std::string write;    // file; empty: none
  std::optional<int> world, hosts, ranks_per_host;
  std::string start = "shared-out", dtype = "float32";
  double host_gib = 0;    // 0: of the machine
  double device_gib = 0;  // 0: no devices
  double device_reserve_gib = 0;
  bool force = false, largest = false;
};

Start start_of(const Request& request) {
  Start start;
  for (const StartWay& way : kStartWays) {
    if (request.start == way.name) start.way = way.way;
  }
  start.element_bytes = request.dtype == "float32" ? 4 : 2;
  return start;
}

constexpr uint64_t kMostBytes = uint64_t{1} << 60;

Placement placement_of(const Request& request) {
  if (request.world && request.ranks_per_host && !request.hosts) {
    const int world = *request.world, ranks = *request.ranks_per_host;
    if (ranks > world) {
      throw Misuse(format_text("--ranks-per-host {} is more than --world {}", ranks, world));
    }
    return {world, (world + ranks - 1) / ranks, ranks};
  }
  const int hosts = request.hosts.value_or(1);
  if (request.world && *request.world % hosts != 0) {
    throw Misuse(format_text("--world {} cannot be divided by --hosts {}; leave one of them out",
                             *request.world, hosts));
  }
  const int ranks = request.ranks_per_host.value_or(request.world.value_or(hosts) / hosts);
  const int64_t world = int64_t{hosts} * ranks;
  if (request.world && *request.world != world) {
    throw Misuse(
        format_text("--hosts {} × --ranks-per-host {} is not --world {}; leave one of "
                    "them out",
                    hosts, ranks, *request.world));
  }
  if (world > 1 << 20) throw Misuse(format_text("{} ranks are more than {}", world, 1 << 20));
  return {static_cast<int>(world), hosts, ranks};
}

int64_t bytes_of(double gib) { return static_cast<int64_t>(gib * 0x1p30); }

struct HostMemory {
  int64_t bytes;
  std::string source;
};

HostMemory host_memory(const Request& request) {
  if (request.host_gib > 0) return {bytes_of(request.host_gib), "given"};
  const bool here = request.machine.empty();
  const Json machine = here ? machine_here() : machine_in(request.machine);
  const std::string path = "/memory/usable_bytes";
  const auto bytes = number_at(machine, path);
  if (!bytes) {
    fail(OTR_E_UNSUPPORTED, "{} does not tell its free memory ({}); give it with --host-gib",
         here ? "this machine" : request.machine, reason_at(machine, path));
  }
  if (*bytes > kMostBytes) {
    fail(OTR_E_ARGUMENT,
         "{} has usable_bytes {}; legal is 0 to 2^60: write it anew there with "
         "outrigger doctor --json, or give --host-gib",
         request.machine, *bytes);
  }
  return {static_cast<int64_t>(*bytes),
          here ? "free here" : format_text("free by {}", request.machine)};
}

Room room_of(const Request& request) {
  if (request.device_reserve_gib > 0 && request.device_reserve_gib >= request.device_gib) {
    throw Misuse(
        format_text("--device-reserve-gib {} leaves nothing of --device-gib {}; reserve less",
                    request.device_reserve_gib, request.device_gib));
  }
  const HostMemory host = host_memory(request);
  const int64_t reserved = bytes_of(request.device_reserve_gib);
  return {{host.bytes, bytes_of(request.device_gib) - reserved}, host.source, reserved};
}

int64_t count_parameters(const std::vector<NamedShape>& shapes) {
  int64_t parameters = 0;
  for (const NamedShape& p : shapes) {
    int64_t count = 1;
    for (const int64_t extent : p.shape) count *= extent;
    parameters += count;
  }
  return parameters;
}

// The configuration as it is if it fits, else with the first change that does.
std::optional<Written> write_config(const Request& request, const std::string& text,
                                    const Answer& a) {
  if (a.fits()) {
    write_file(request.write, text.ends_with('\n') ? text : text + "\n", request.force);
    return Written{request.write, "", "it fits: " + reason_for(a, a.needed)};
  }
  if (a.changes.empty()) return {};
  const Change& first = a.changes[0];
  write_file(request.write, first.config.dump(2) + "\n", request.force);
  return Written{request.write, first.name, reason_for(a, first.needed)};
}

int estimate(const Request& request, bool json) {
  if (!request.write.empty() && !request.force && std::filesystem::exists(request.write)) {
    throw Misuse(
        format_text("{} exists; name another file, or give --force to replace it", request.write));
  }
  const Setting setting{placement_of(request), start_of(request), request.device_gib > 0};
  std::string text = request.config.empty() ? "" : read_file(request.config);
  if (text.empty()) text = "{}";
  const std::vector<NamedShape> shapes = read_shapes(request.model);
  const Model model(text, shapes, setting);
  Answer a{count_parameters(shapes),
           shapes.size(),
           setting,
           room_of(request),
           model.estimate(OTR_LAYOUT_OUTRIGGER),
           model.estimate(OTR_LAYOUT_DEEPSPEED),
           {},
           request.start,
           request.dtype,
           model.needed(),
           {},
           {},
           config_warnings(text, setting.placement.world),
           {}};
  for (const StartWay& way : kStartWays) a.starts.push_back(model.start_peaks(way.way));
  const std::vector<Change> changes = changes_of(Json::parse(text), shapes, setting, model);
  std::ranges::copy_if(changes, std::back_inserter(a.changes),
                       [&](const Change& c) { return c.needed.fit_in(a.room.bytes); });
  if (request.largest) {
    const auto add = [&](const Change& c, const std::string& config) {
      a.candidates.push_back({c, largest_of(config, shapes, setting, a.room.bytes)});
    };
    add({"", Json::object(), {}, a.needed}, text);
    for (const Change& c : changes) add(c, c.config.dump());
  }
  if (!request.write.empty()) a.written = write_config(request, text, a);
  json ? print_json(a) : print_text(a);
  if (!json) say_warnings(request.config, a.warnings);
  return a.fits() || a.written ? 0 : 1;
}

}  // namespace

Command add_estimate(CLI::App& app, bool& json) {
  const auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand(
      "estimate", "Say what a model needs on each rank and host, and what would fit");
  const auto count = CLI::Range(1, 1 << 20);
  command
      ->add_option("model", request->model,
                   "safetensors file, Hugging Face config.json, or shapes as JSON: "
                   "{\"w\": [1024, 1024], \"b\": [1024]}")
      ->required();
  command->add_option("--config", request->config, "Configuration (default: float32, stage 0)");
  command
      ->add_option("--world", request->world, "Number of ranks (default: hosts × ranks per host)")
      ->check(count);
  command->add_option("--hosts", request->hosts, "Number of hosts (default: 1)")->check(count);
  command->add_option("--ranks-per-host", request->ranks_per_host, "Default: world / hosts")
      ->check(count);
  CLI::Option* given = command
                           ->add_option("--host-gib", request->host_gib,
                                        "A host's memory (default: what is free here)")
                           ->check(number_in(0.001, kMostBytes / 0x1p30, "a host's memory in GiB"));
  command
      ->add_option("--machine", request->machine,
                   "A host's memory as outrigger doctor --json wrote it there")
      ->excludes(given);
  CLI::Option* device =
      command
          ->add_option("--device-gib", request->device_gib,
                       "Each rank has a device with so much memory (default: no devices)")
          ->check(number_in(0.001, kMostBytes / 0x1p30, "a device's memory in GiB"));
  command
      ->add_option("--device-reserve-gib", request->device_reserve_gib,
                   "Of it, so much is for activations and the framework (default: 0)")
      ->check(number_in(0, kMostBytes / 0x1p30, "a reserve of a device's memory in GiB"))
      ->needs(device);
  command
      ->add_option("--start", request->start,
                   "How the first values come, which counts, too (default: shared-out, the least): "
                   "given, held, shared-out")
      ->check(CLI::IsMember({"given", "held", "shared-out"}));
  command
      ->add_option("--initial-dtype", request->dtype,
                   "In what they are held (default: float32): float32, bfloat16, float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  CLI::Option* write = command->add_option(
      "--write-config", request->write,
      "Write the configuration, with the first change that fits if it does not fit itself");
  command->add_flag("--force", request->force, "Let --write-config replace a file")->needs(write);
  command->add_flag("--largest", request->largest,
                    "Say how large a model of such tensors fits, as it is and with each change");
  command->add_flag("--json", json, "As JSON, in bytes");
  command->footer(
      "The exit code is 0 if it fits (or what was written does), 1 if not, 2 for a fault.");
  return {command, [request](const Call& call) { return estimate(*request, call.json); }};
}

}  // namespace outrigger::tools
