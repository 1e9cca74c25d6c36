// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "command.h"
#include "fault.h"
#include "files.h"
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
  double host_gib = 0;  // 0: of the machine
  bool force = false;
};

struct Host {
  int64_t bytes;
  std::string source;  // "given", "free here"
};

struct Written {
  std::string file, change, reason;
};

struct Way {
  const char* name;
  int32_t way;
  const char* text;
};
constexpr Way kWays[] = {
    {"given", OTR_START_GIVEN, "given to otr_engine_add_parameter"},
    {"held", OTR_START_HELD, "held whole by every rank"},
    {"shared-out", OTR_START_SHARED_OUT, "one part of them held by each rank"},
};

Start start_of(const Request& request) {
  Start start;
  for (const Way& way : kWays) {
    if (request.start == way.name) start.way = way.way;
  }
  start.element_bytes = request.dtype == "float32" ? 4 : 2;
  return start;
}

constexpr uint64_t kMostHostBytes = uint64_t{1} << 60;

// In which a number of bytes has a digit or more before the point.
struct Unit {
  const char* name;
  double bytes;
  [[nodiscard]] double of(int64_t n) const { return static_cast<double>(n) / bytes; }
};

Unit unit_for(int64_t bytes) {
  if (bytes >= 1 << 30) return {"GiB", 0x1p30};
  return bytes >= 1 << 20 ? Unit{"MiB", 0x1p20} : Unit{"KiB", 0x1p10};
}

std::string amount(int64_t bytes) {
  const Unit unit = unit_for(bytes);
  return format_text("{:.2f} {}", unit.of(bytes), unit.name);
}

std::string counted(int64_t n, const char* what) {
  return format_text("{} {}{}", n, what, n == 1 ? "" : "s");
}

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

Host host_of(const Request& request) {
  if (request.host_gib > 0) return {static_cast<int64_t>(request.host_gib * 0x1p30), "given"};
  const bool here = request.machine.empty();
  const Json machine = here ? machine_here() : machine_in(request.machine);
  const std::string path = "/memory/usable_bytes";
  const auto bytes = number_at(machine, path);
  if (!bytes) {
    fail(OTR_E_UNSUPPORTED, "{} does not tell its free memory ({}); give it with --host-gib",
         here ? "this machine" : request.machine, reason_at(machine, path));
  }
  if (*bytes > kMostHostBytes) {
    fail(OTR_E_ARGUMENT,
         "{} has usable_bytes {}; legal is 0 to 2^60: write it anew there with "
         "outrigger doctor --json, or give --host-gib",
         request.machine, *bytes);
  }
  return {static_cast<int64_t>(*bytes),
          here ? "free here" : format_text("free by {}", request.machine)};
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

std::string reason_for(const Host& host, int64_t before, int64_t after) {
  return format_text("a host needs {} instead of {}; {} are {}", amount(after), amount(before),
                     amount(host.bytes), host.source);
}

struct Answer {
  int64_t parameters;
  size_t tensors;
  Placement placement;
  Host host;
  std::vector<otr_memory_entry> ours, theirs;
  std::vector<Model::Peaks> starts;  // of kWays
  std::string start, dtype;          // that counts
  int64_t needed;                    // bytes of a host
  bool fits;
  std::vector<Change> changes;
  std::vector<std::string> warnings;  // of the configuration as it was
  std::optional<Written> written;
};

void print_json(const Answer& a) {
  Json out = {
      {"parameters", a.parameters},           {"world_size", a.placement.world},
      {"hosts", a.placement.hosts},           {"ranks_per_host", a.placement.ranks_per_host},
      {"host_bytes_available", a.host.bytes}, {"host_bytes_source", a.host.source},
      {"host_bytes_needed", a.needed},        {"fits", a.fits}};
  for (const auto& [name, entries] : {std::pair{"outrigger", &a.ours}, {"deepspeed", &a.theirs}}) {
    for (const otr_memory_entry& e : *entries) {
      out["rank"][name][e.purpose] = {{"resident_bytes", e.resident_bytes},
                                      {"peak_bytes", e.peak_bytes}};
    }
  }
  out["start"] = {{"counted", a.start}, {"dtype", a.dtype}};
  for (size_t i = 0; i < a.starts.size(); ++i) {
    const Model::Peaks& peaks = a.starts[i];
    out["start"][kWays[i].name] = {{"rank_peak_bytes", peaks.rank},
                                   {"host_peak_bytes", peaks.host}};
  }
  out["would_fit"] = Json::array();
  for (const Change& c : a.changes) {
    out["would_fit"].push_back(
        {{"change", c.name}, {"patch", c.patch}, {"host_bytes", c.host_bytes}});
  }
  out["warnings"] = a.warnings;
  out["written"] = Json();
  if (a.written) {
    out["written"] = {{"file", a.written->file},
                      {"change", a.written->change.empty() ? Json() : Json(a.written->change)},
                      {"reason", a.written->reason}};
  }
  write_text("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_text(const Answer& a) {
  write_text("{}, {}, {} on {}\n\n", counted(static_cast<int64_t>(a.tensors), "tensor"),
             counted(a.parameters, "parameter"), counted(a.placement.world, "rank"),
             counted(a.placement.hosts, "host"));
  const Unit unit = unit_for(a.ours.back().peak_bytes);
  write_text("{} a rank, resident / peak      Outrigger            DeepSpeed 0.19.8\n", unit.name);
  for (size_t i = 0; i < a.ours.size(); ++i) {
    const otr_memory_entry &ours = a.ours[i], &theirs = a.theirs[i];
    if (ours.peak_bytes == 0 && theirs.peak_bytes == 0) continue;
    write_text("{:<28} {:>8.3f} / {:>8.3f}   {:>8.3f} / {:>8.3f}\n", ours.purpose,
               unit.of(ours.resident_bytes), unit.of(ours.peak_bytes),
               unit.of(theirs.resident_bytes), unit.of(theirs.peak_bytes));
  }
  const Unit at_start = unit_for(a.starts[0].host);
  write_text("\n{} at start, first values          rank 0       a host\n", at_start.name);
  for (size_t i = 0; i < a.starts.size(); ++i) {
    write_text("{:<34} {:>7.3f}     {:>8.3f}{}{}\n", kWays[i].text, at_start.of(a.starts[i].rank),
               at_start.of(a.starts[i].host), a.start == kWays[i].name ? "  counted" : "",
               a.starts[i].host > a.host.bytes ? "  does not fit" : "");
  }
  write_text("\n{} on a host {} {}; {} are {}: it {}.\n",
             counted(a.placement.ranks_per_host, "rank"),
             a.placement.ranks_per_host == 1 ? "needs" : "need", amount(a.needed),
             amount(a.host.bytes), a.host.source, a.fits ? "fits" : "does not fit");
  if (a.placement.hosts > 1) {
    write_text("Ranks are counted as sharing no memory, as over a communicator of the caller's.\n");
  }
  write_text("Activations and the framework's own memory come on top.\n");
  if (!a.fits) {
    write_text("{}\n", a.changes.empty() ? "No stage or bfloat16 form fits: use more hosts."
                                         : "What would fit:");
    for (const Change& c : a.changes) {
      write_text("  {:<44} {:>12} a host\n", c.name, amount(c.host_bytes));
    }
  }
  if (!a.written) return;
  write_text("\n{} has {}: {}.\n", a.written->file,
             a.written->change.empty() ? "the configuration as it was" : a.written->change,
             a.written->reason);
}

// The configuration as it is if it fits, else with the first change that does.
std::optional<Written> write_config(const Request& request, const std::string& text,
                                    const Answer& a) {
  if (a.fits) {
    write_file(request.write, text.ends_with('\n') ? text : text + "\n", request.force);
    return Written{request.write, "",
                   format_text("it fits: a host needs {}; {} are {}", amount(a.needed),
                               amount(a.host.bytes), a.host.source)};
  }
  if (a.changes.empty()) return {};
  const Change& first = a.changes[0];
  write_file(request.write, first.config.dump(2) + "\n", request.force);
  return Written{request.write, first.name, reason_for(a.host, a.needed, first.host_bytes)};
}

int estimate(const Request& request, bool json) {
  if (!request.write.empty() && !request.force && std::filesystem::exists(request.write)) {
    throw Misuse(
        format_text("{} exists; name another file, or give --force to replace it", request.write));
  }
  const Placement placement = placement_of(request);
  std::string text = request.config.empty() ? "" : read_file(request.config);
  if (text.empty()) text = "{}";
  const std::vector<NamedShape> shapes = read_shapes(request.model);
  const Start start = start_of(request);
  const Model model(text, shapes, placement, start);
  const Host host = host_of(request);
  Answer a{count_parameters(shapes),
           shapes.size(),
           placement,
           host,
           model.estimate(OTR_LAYOUT_OUTRIGGER),
           model.estimate(OTR_LAYOUT_DEEPSPEED),
           {},
           request.start,
           request.dtype,
           model.host_bytes(),
           model.host_bytes() <= host.bytes,
           changes_that_fit(Json::parse(text), shapes, placement, start, model, host.bytes),
           config_warnings(text, placement.world),
           {}};
  for (const Way& way : kWays) a.starts.push_back(model.start_peaks(way.way));
  if (!request.write.empty()) a.written = write_config(request, text, a);
  json ? print_json(a) : print_text(a);
  if (!json) say_warnings(request.config, a.warnings);
  return a.fits || a.written ? 0 : 1;
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
  CLI::Option* given =
      command
          ->add_option("--host-gib", request->host_gib,
                       "A host's memory (default: what is free here)")
          ->check(number_in(0.001, kMostHostBytes / 0x1p30, "a host's memory in GiB"));
  command
      ->add_option("--machine", request->machine,
                   "A host's memory as outrigger doctor --json wrote it there")
      ->excludes(given);
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
  command->add_flag("--json", json, "As JSON, in bytes");
  command->footer(
      "The exit code is 0 if it fits (or what was written does), 1 if not, 2 for a fault.");
  return {command, [request](const Call& call) { return estimate(*request, call.json); }};
}

}  // namespace outrigger::tools
