// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/checkpoint/bundle.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "core/base/text.h"
#include "tests/fuzz/checkpoint/model.h"

namespace otr_fuzz_checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kId = "00112233aabbccdd";

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void save(otr_comm* comm, Model::Kind kind, const std::string& folder) {
  Model model(comm, kind, 1);
  for (int i = 0; i < 3; ++i) model.step();
  outrigger::engine::SaveOptions options;
  const std::string part = "bytes of the host";
  options.parts.push_back({"place", std::as_bytes(std::span(part))});
  model.engine().save(folder, "a", options);
}

// Ranks on threads.
void save_by(int32_t world, Model::Kind kind, const std::string& folder) {
  otr_context* context = nullptr;
  need(otr_context_create(nullptr, &context));
  std::vector<otr_comm*> comms(static_cast<size_t>(world));
  need(otr_comm_create_threads(context, world, nullptr, comms.data()));
  std::vector<std::thread> threads;
  for (otr_comm* const comm : comms) {
    threads.emplace_back([&, comm] {
      save(comm, kind, folder);
      otr_comm_destroy(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  otr_context_destroy(context);
}

// The id is another one in each save. The configuration is most of a manifest, and no reader looks
// into it: with a little of it an input takes a third of the time, and changes hit what counts.
void simplify(Bundle& bundle) {
  Json manifest = Json::parse(bundle[kManifest]);
  Json little = Json::object();
  for (const auto& [key, value] : manifest["configuration"].items()) {
    if (little.size() < 2) little[key] = value;
  }
  manifest["configuration"] = little;
  bundle[kManifest] = manifest.dump();
  const auto id = manifest["id"].get<std::string>();
  for (std::string& file : bundle) {
    for (size_t at = 0; (at = file.find(id, at)) != std::string::npos; at += kId.size()) {
      file.replace(at, kId.size(), kId);
    }
  }
  reseal(bundle);
}

Bundle make_seed(int32_t world, Model::Kind kind) {
  std::string folder = (std::filesystem::temp_directory_path() / "outrigger_fuzz_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
  save_by(world, kind, folder);
  Bundle bundle;
  for (size_t i = 0; i < kFiles; ++i) {
    bundle.at(i) = read_text(folder + std::string(kPaths.at(i)).substr(3));
  }
  std::filesystem::remove_all(folder);
  simplify(bundle);
  return bundle;
}

std::string hash_of(std::string_view text) {
  return outrigger::format_text("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace

std::string text_of(const Bundle& bundle) { return otr_fuzz::joined(bundle); }

Bundle bundle_of(std::string_view text) {
  Bundle bundle;
  otr_fuzz::part(text, bundle);
  return bundle;
}

void fill(otr_fuzz::MemoryFiles& files, const Bundle& bundle) {
  files.add_folder("dir");
  files.add_folder("dir/a");
  for (size_t i = 0; i < kFiles; ++i) {
    if (!bundle.at(i).empty()) files.add_file(kPaths.at(i), bundle.at(i));
  }
}

const std::vector<Bundle>& seeds() {
  static const std::vector<Bundle> kSeeds{make_seed(1, Model::Kind::composed),
                                          make_seed(2, Model::Kind::plain)};
  return kSeeds;
}

void reseal(Bundle& bundle) {
  Json json = Json::parse(bundle[kManifest], nullptr, false);
  if (!json.is_object() || !json.contains("index") || !json["index"].is_object()) return;
  json["index"]["bytes"] = bundle[kIndex].size();
  json["index"]["xxh3"] = hash_of(bundle[kIndex]);
  if (json.contains("files") && json["files"].is_array()) {
    for (size_t i = 0; i < std::min(json["files"].size(), kFiles - kRanks); ++i) {
      if (json["files"][i].is_object()) json["files"][i]["bytes"] = bundle.at(kRanks + i).size();
    }
  }
  json.erase("xxh3");
  json["xxh3"] = "0000000000000000";
  std::string text = json.dump(1) + "\n";
  const size_t digits = text.size() - 20;
  text.replace(digits, 16, hash_of(std::string_view(text).substr(0, digits)));
  bundle[kManifest] = text;
}

}  // namespace otr_fuzz_checkpoint
