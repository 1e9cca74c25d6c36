// SPDX-License-Identifier: Apache-2.0
#include "core/engine/open_checkpoint.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/planes.h"
#include "core/engine/progress.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::Manifest;

namespace {

Manifest manifest_in(const Folder& parent, const std::string& tag) {
  const Folder folder = checkpoint::open_checkpoint(parent, tag);
  const std::string path = folder.path_of(checkpoint::kManifestName);
  Manifest manifest = checkpoint::parse_manifest(checkpoint::read_manifest(folder), path);
  try {
    require_saved_progress(manifest.progress);
  } catch (const Error& error) {
    fail(OTR_E_CORRUPT, "{}: {}", path, error.what());
  }
  return manifest;
}

}  // namespace

std::string list_checkpoints(const std::string& directory) {
  const Folder folder = Folder::open(checkpoint::posix_files(), directory);
  const auto latest = checkpoint::read_latest(folder);
  nlohmann::ordered_json json = {{"latest", nullptr}, {"tags", checkpoint::tags(folder)}};
  if (latest) json["latest"] = *latest;
  return json.dump();
}

OpenCheckpoint::OpenCheckpoint(const std::string& directory, const std::string& tag)
    : OpenCheckpoint(Folder::open(checkpoint::posix_files(), directory), tag) {}

OpenCheckpoint::OpenCheckpoint(const Folder& parent, const std::string& tag)
    : tag_(checkpoint::tag_or_latest(parent, tag)),
      manifest_(manifest_in(parent, tag_)),
      source_(checkpoint::open_checkpoint(parent, tag_), manifest_),
      decoder_(source_, manifest_) {
  for (size_t i = 0; i < manifest_.parameters.size(); ++i) {
    parameters_.emplace(manifest_.parameters[i].name, static_cast<int64_t>(i));
  }
}

int64_t OpenCheckpoint::parameter_named(const std::string& name) const {
  if (const auto found = parameters_.find(name); found != parameters_.end()) return found->second;
  fail(OTR_E_NOT_FOUND, "checkpoint {} has no parameter \"{}\" among its {}", tag_, printable(name),
       manifest_.parameters.size());
}

std::string OpenCheckpoint::describe() {
  using Json = nlohmann::ordered_json;
  const std::lock_guard lock(mutex_);
  Json json = Json::parse(checkpoint::to_json(manifest_)), parts = Json::array();
  const auto ranks = static_cast<int64_t>(manifest_.file_bytes.size());
  for (int64_t rank = 0; rank < ranks; ++rank) parts.push_back(source_.part_names(rank));
  for (size_t i = 0; i < manifest_.parameters.size(); ++i) {
    Json states = Json::array();
    for (size_t kept = 0; kept < checkpoint::kKept; ++kept) {
      const auto state = static_cast<checkpoint::Kept>(kept);
      if (source_.has(static_cast<int64_t>(i), state)) states.push_back(checkpoint::name_of(state));
    }
    json["parameters"][i]["states"] = states;
  }
  const Json described = {{"tag", tag_},
                          {"library", manifest_.library},
                          {"ranks", ranks},
                          {"parts", parts},
                          {"files", json["files"]},
                          {"formats", json["formats"]},
                          {"progress", json["progress"]},
                          {"configuration", json["configuration"]},
                          {"parameters", json["parameters"]}};
  return described.dump();
}

std::vector<std::byte> OpenCheckpoint::part(const std::string& name, int32_t rank) {
  const std::lock_guard lock(mutex_);
  return source_.part(name, rank);
}

void OpenCheckpoint::read(const std::string& name, int32_t value, int64_t first,
                          std::span<float> out) {
  const int64_t parameter = parameter_named(name);
  const std::lock_guard lock(mutex_);
  switch (value) {
    case OTR_VALUE_MASTER:
      return decoder_.read_weight(parameter, first, out);
    case OTR_VALUE_PUBLISHED:
      return decoder_.read_published(parameter, first, out);
    case OTR_VALUE_EXP_AVG:
      return decoder_.read(parameter, checkpoint::Kept::exp_avg, first, out);
    case OTR_VALUE_EXP_AVG_SQ:
      return decoder_.read(parameter, checkpoint::Kept::exp_avg_sq, first, out);
    default:
      fail(OTR_E_ARGUMENT,
           "value = {}; a checkpoint has OTR_VALUE_MASTER, OTR_VALUE_PUBLISHED, OTR_VALUE_EXP_AVG "
           "and OTR_VALUE_EXP_AVG_SQ",
           value);
  }
}

void OpenCheckpoint::export_to(const std::string& path, const checkpoint::ExportOptions& options,
                               checkpoint::Files& files) {
  const std::lock_guard lock(mutex_);
  checkpoint::export_weights(source_, manifest_, files, path, options);
}

void OpenCheckpoint::verify() {
  const std::lock_guard lock(mutex_);
  source_.verify();
}

}  // namespace outrigger::engine
