// SPDX-License-Identifier: Apache-2.0
#include "core/engine/open_checkpoint.h"

#include <nlohmann/json.hpp>

#include "core/checkpoint/directory.h"
#include "core/checkpoint/planes.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::Manifest;

namespace {

Manifest manifest_in(const Folder& parent, const std::string& tag) {
  const Folder folder = checkpoint::open_checkpoint(parent, tag);
  return checkpoint::parse_manifest(checkpoint::read_manifest(folder),
                                    folder.path_of(checkpoint::kManifestName));
}

}  // namespace

OpenCheckpoint::OpenCheckpoint(const std::string& directory, const std::string& tag)
    : OpenCheckpoint(Folder::open(checkpoint::posix_files(), directory), tag) {}

OpenCheckpoint::OpenCheckpoint(const Folder& parent, const std::string& tag)
    : tag_(checkpoint::tag_or_latest(parent, tag)),
      manifest_(manifest_in(parent, tag_)),
      source_(checkpoint::open_checkpoint(parent, tag_), manifest_) {}

std::string OpenCheckpoint::describe() {
  using Json = nlohmann::ordered_json;
  const std::lock_guard lock(mutex_);
  Json json = Json::parse(checkpoint::to_json(manifest_)), parts = Json::array();
  const auto ranks = static_cast<int64_t>(manifest_.file_bytes.size());
  for (int64_t rank = 0; rank < ranks; ++rank) parts.push_back(source_.part_names(rank));
  const Json described = {{"tag", tag_},
                          {"library", manifest_.library},
                          {"ranks", ranks},
                          {"parts", parts},
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

void OpenCheckpoint::verify() {
  const std::lock_guard lock(mutex_);
  source_.verify();
}

}  // namespace outrigger::engine
