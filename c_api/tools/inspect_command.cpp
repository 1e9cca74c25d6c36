// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint.h"
#include "command.h"
#include "core/observe/flight_folder.h"
#include "fault.h"
#include "flight_file.h"
#include "flight_report.h"
#include "progress.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Inspection {
  std::string directory, tag, other, other_tag;
  bool verify = false;
  FlightRequest flights;
};

std::string text_in(const Json& value) { return shown(value.get<std::string>()); }

// Of a run of elements from a leaf on, as docs/checkpoint-format.md says.
int64_t bytes_kept(const std::string& format, int64_t count) {
  if (format.ends_with("block8")) return count + (count + 255) / 256 * 4;
  return count * (format == "bfloat16" || format == "float16" ? 2 : 4);
}

std::string progress_line(const Json& progress) {
  if (progress.contains("imported")) {
    const Json& imported = progress["imported"];
    if (imported.is_null()) return "made without an engine, weights only";
    return format_text("made without an engine, {} updates", imported["applied"].get<int64_t>());
  }
  const Json& steps = progress["steps"];
  return format_text("{} micro-steps, {} applied, {} skipped", steps["micro"].get<int64_t>(),
                     steps["applied"].get<int64_t>(), steps["skipped"].get<int64_t>());
}

// "master float32, exp_avg block8", and the bytes of all.
std::pair<std::string, int64_t> kept_line(const Json& description, const Json& parameter) {
  const int64_t root = parameter["root"].get<int64_t>();
  const Json& its = description["parameters"][static_cast<size_t>(root)];
  if (its["name"] != parameter["name"]) {
    return {format_text("shares {}", text_in(its["name"])), 0};
  }
  int64_t count = 1, bytes = 0;
  for (const Json& extent : parameter["shape"]) count *= extent.get<int64_t>();
  std::string line;
  for (const Json& state : parameter["states"]) {
    const auto format = description["formats"][state.get<std::string>()].get<std::string>();
    line += format_text("{}{} {}", line.empty() ? "" : ", ", state.get<std::string>(), format);
    bytes += bytes_kept(format, count);
  }
  return {line, bytes};
}

void print_checkpoint(const Json& listed, const Json& d) {
  const auto tag = d["tag"].get<std::string>();
  write_text("checkpoint  {}{}\n", tag, listed["latest"] == d["tag"] ? ", the latest" : "");
  write_text("tags        {}\n", fmt::join(listed["tags"].get<std::vector<std::string>>(), ", "));
  write_text("saved by    {} rank{}, Outrigger {}\n", d["ranks"].get<int64_t>(),
             d["ranks"] == 1 ? "" : "s", text_in(d["library"]));
  write_text("progress    {}\n", progress_line(d["progress"]));
  for (const Json& file : d["files"]) {
    write_text("file        {} {} bytes\n", file["name"].get<std::string>(),
               file["bytes"].get<int64_t>());
  }
  size_t widest = 9;
  for (const Json& p : d["parameters"]) {
    widest = std::max(widest, text_in(p["name"]).size());
  }
  write_text("\n{:<{}}  {:>14}  {:>14}  states\n", "parameter", widest, "shape", "bytes");
  for (const Json& p : d["parameters"]) {
    const auto [states, bytes] = kept_line(d, p);
    write_text("{:<{}}  {:>14}  {:>14}  {}\n", text_in(p["name"]), widest, p["shape"].dump(), bytes,
               states);
  }
}

void print_differences(const Json& found) {
  if (found.empty()) write_text("\nno difference\n");
  for (const Json& each : found) {
    const std::string state = each["state"].is_null() ? "" : " " + each["state"].get<std::string>();
    std::string more;
    if (each.contains("differing")) {
      more = format_text(": {} elements, by at most {}", each["differing"].get<int64_t>(),
                         each["max_abs"].is_null() ? "no number" : each["max_abs"].dump());
    }
    write_text("differs: {}{}: {}{}\n", text_in(each["parameter"]), state,
               each["what"].get<std::string>(), more);
  }
}

int64_t bytes_of(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const Json& file : checkpoint.description()["files"]) bytes += file["bytes"].get<int64_t>();
  return bytes;
}

// Of a file, or of all in a folder; 0 where that cannot be seen.
int64_t bytes_in(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    const auto bytes = std::filesystem::file_size(path, ignored);
    return ignored ? 0 : static_cast<int64_t>(bytes);
  }
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    if (const auto size = entry.file_size(ignored); !ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

int inspect(const Inspection& request, bool json) {
  const Json listed = checkpoints_in(request.directory);
  const Checkpoint checkpoint(request.directory, request.tag);
  Json all = checkpoint.description();
  all["latest"] = listed["latest"];
  all["tags"] = listed["tags"];
  std::string damage;
  if (request.verify) {
    const Progress progress("inspect --verify", bytes_of(checkpoint));
    if (otr_checkpoint_verify(checkpoint.get()) != OTR_OK) damage = otr_last_error_message();
  }
  if (request.verify) {
    all["verified"] = damage.empty();
    if (!damage.empty()) all["damage"] = damage;
  }
  Json found = Json::array();
  if (!request.other.empty() && damage.empty()) {
    const Checkpoint other(request.other, request.other_tag);
    const Progress progress("inspect --diff", bytes_of(checkpoint) + bytes_of(other));
    found = differences(checkpoint, other);
    all["differences"] = found;
  }
  if (json) {
    write_text("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_checkpoint(listed, checkpoint.description());
    if (request.verify) write_text("\n{}\n", damage.empty() ? "all values are as written" : damage);
    if (all.contains("differences")) print_differences(found);
  }
  return damage.empty() && found.empty() ? 0 : 1;
}

// What flight recorders have left, where no checkpoint is asked for.
int inspect_flights(Inspection request, bool json) {
  if (request.verify || !request.tag.empty() || !request.other.empty()) {
    throw Misuse(
        format_text("{} has files of flight recorders, and --tag, --verify and --diff are for "
                    "checkpoints",
                    request.directory));
  }
  request.flights.where = request.directory;
  request.flights.json = json;
  return report_flights(request.flights);
}

int inspect_either(Inspection request, bool json) {
  if (request.directory.empty()) {
    const observe::FlightPlace place = observe::flight_place();
    if (place.folder.empty()) {
      throw Misuse("OTR_FLIGHT_RECORDER is \"off\": name a folder", OTR_E_NOT_FOUND);
    }
    request.directory = place.folder;
    return inspect_flights(std::move(request), json);
  }
  std::error_code none;
  const bool is_folder = std::filesystem::is_directory(request.directory, none);
  if (is_folder ? has_flights(request.directory)
                : request.directory.ends_with(observe::kFlightSuffix)) {
    return inspect_flights(std::move(request), json);
  }
  if (request.flights.process != 0 || request.flights.last != 0) {
    throw Misuse(format_text("{} has no files of flight recorders, and --process and --last are "
                             "for them",
                             request.directory),
                 OTR_E_NOT_FOUND);
  }
  return inspect(request, json);
}

void make_folder(const std::string& path) {
  std::error_code reason;
  std::filesystem::create_directories(path, reason);
  if (reason) fail(OTR_E_IO, "cannot make the folder {}: {}", path, reason.message());
}

}  // namespace

Command add_inspect(CLI::App& app, bool& json) {
  const auto request = std::make_shared<Inspection>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what each rank of a job did last, or what a checkpoint holds");
  command->add_option("directory", request->directory,
                      "Folder of checkpoints, or of flight recorders' files; without it, where "
                      "those of this machine are");
  command
      ->add_option("--process", request->flights.process,
                   "The job that this process was of; without it the last")
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
  command->add_option("--last", request->flights.last, "So many operations of each rank, too")
      ->check(CLI::Range(int64_t{1}, int64_t{observe::kFlightEntries}));
  command->add_option("--tag", request->tag, "Which one; without it the latest");
  command->add_flag("--verify", request->verify, "Read all values and compare them with checksums");
  CLI::Option* diff = command->add_option("--diff", request->other,
                                          "Folder of another checkpoint, to compare values with");
  command->add_option("--diff-tag", request->other_tag, "Which one there; without it the latest")
      ->needs(diff);
  command->add_flag("--json", json, "As JSON");
  return {command, [request](const Call& call) { return inspect_either(*request, call.json); }, 2};
}

Command add_export(CLI::App& app, bool& json) {
  struct Request {
    std::string directory, path, tag, dtype = "float32";
    uint64_t most = 0;
    bool replace = false;
  };
  const auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand(
      "export", "Write a checkpoint's weights as a safetensors file or Hugging Face files");
  command->add_option("directory", request->directory, "Folder of checkpoints")->required();
  command->add_option("path", request->path, "File; with --max-shard-size a folder")->required();
  command->add_option("--tag", request->tag, "Which one; without it the latest");
  command->add_option("--dtype", request->dtype, "Of the weights, rounded to nearest even")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->capture_default_str();
  command->add_option("--max-shard-size", request->most, "Bytes of a file, such as 5GB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 60));
  command->add_flag("--replace", request->replace, "Replace files that are there");
  command->add_flag("--json", json, "Say what is wrong as JSON");
  const auto run = [request](const Call& call) {
    const Checkpoint checkpoint(request->directory, request->tag);
    otr_export_options options;
    check(otr_export_options_init(&options, sizeof options));
    options.dtype = request->dtype.c_str();
    options.max_shard_bytes = static_cast<int64_t>(request->most);
    options.replace = request->replace ? 1 : 0;
    if (request->most > 0) make_folder(request->path);
    const Progress progress("export", 0);
    check(otr_checkpoint_export(checkpoint.get(), request->path.c_str(), &options));
    const Json told = {{"tag", checkpoint.description()["tag"]}, {"path", request->path}};
    if (call.json) write_text("{}\n", told.dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  };
  return {command, run, 1};
}

Command add_import(CLI::App& app, bool& json) {
  struct Request {
    std::string source, directory, tag = "imported";
    bool replace = false, skip = false;
  };
  const auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand(
      "import", "Make a checkpoint of a safetensors file or of a Hugging Face model's folder");
  command->add_option("source", request->source, "File, index or folder")->required();
  command->add_option("directory", request->directory, "Folder of checkpoints")->required();
  command->add_option("--tag", request->tag, "Its name there")->capture_default_str();
  command->add_flag("--replace", request->replace, "Replace a checkpoint of that name");
  command->add_flag("--skip-other-dtypes", request->skip, "Leave out tensors that are no floats");
  command->add_flag("--json", json, "Say what is wrong as JSON");
  const auto run = [request](const Call& call) {
    otr_import_options options;
    check(otr_import_options_init(&options, sizeof options));
    options.replace = request->replace ? 1 : 0;
    options.skip_other_dtypes = request->skip ? 1 : 0;
    make_folder(request->directory);
    const Progress progress("import", bytes_in(request->source));
    check(otr_checkpoint_import(request->source.c_str(), request->directory.c_str(),
                                request->tag.c_str(), &options));
    const Json told = {{"tag", request->tag}, {"directory", request->directory}};
    if (call.json) write_text("{}\n", told.dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  };
  return {command, run, 1};
}

}  // namespace outrigger::tools
