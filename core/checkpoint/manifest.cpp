// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/manifest.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/planes.h"
#include "core/config/members.h"

namespace outrigger::checkpoint {
namespace {

using config::Json;
using config::Members;
using config::ValueAt;

constexpr std::string_view kManifestFormat = "outrigger checkpoint";
constexpr int64_t kManifestVersion = 1;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr size_t kMaxManifest = size_t{1} << 28, kMaxValues = size_t{1} << 24;
constexpr std::array<std::string_view, kKept> kKeptNames{"master", "exp_avg", "exp_avg_sq",
                                                         "published"};
// How the text ends: the last member's 16 digits, and this.
constexpr std::string_view kManifestEnd = "\"\n}\n";
constexpr size_t kDigits = 16;

// Of all that stands in front of the digits.
std::string seal_of(std::string_view text) {
  const size_t bytes = text.size() - kManifestEnd.size() - kDigits;
  return format_text("{:016x}", XXH3_64bits(text.data(), bytes));
}

void require_sealed(const ValueAt& seal, std::string_view text) {
  const std::string said = seal.text();
  if (said.size() == kDigits && text.ends_with(said + std::string(kManifestEnd)) &&
      said == seal_of(text)) {
    return;
  }
  fail(OTR_E_CORRUPT, "{}: it is not as it was written: its checksum differs", seal.subject().what);
}

Manifest::Parameter read_parameter(const ValueAt& value, int64_t index) {
  Members m(value);
  Manifest::Parameter p;
  p.name = m.take("name").text();
  int64_t count = 1;
  for (const ValueAt& extent : m.take("shape").list()) {
    p.shape.push_back(extent.integer<int64_t>(0, int64_t{1} << 56));
    if (p.shape.back() != 0 && count > (int64_t{1} << 56) / p.shape.back()) {
      extent.refuse("of a shape of at most 2^56 elements");
    }
    count *= std::max<int64_t>(1, p.shape.back());
  }
  p.trainable = m.take("trainable").flag();
  p.root = m.take("root").integer<int64_t>(0, index);
  p.group = m.take("group").text();
  m.require_all_taken();
  return p;
}

void read_parameters(Manifest& manifest, const ValueAt& value) {
  for (const ValueAt& each : value.list()) {
    const auto index = static_cast<int64_t>(manifest.parameters.size());
    const Manifest::Parameter& p = manifest.parameters.emplace_back(read_parameter(each, index));
    const Manifest::Parameter& root = manifest.parameters[static_cast<size_t>(p.root)];
    if (root.root != p.root || root.count() != p.count()) {
      each.refuse("an alias of a parameter of as many elements that is none itself");
    }
  }
  std::vector<std::string_view> names;
  for (const Manifest::Parameter& p : manifest.parameters) names.emplace_back(p.name);
  std::ranges::sort(names);
  const auto twin = std::ranges::adjacent_find(names);
  if (twin == names.end()) return;
  fail(OTR_E_CORRUPT, "{}: two parameters are named \"{}\"", value.subject().what,
       printable(*twin));
}

void read_files(Manifest& manifest, const ValueAt& value) {
  for (const ValueAt& file : value.list()) {
    Members f(file);
    const ValueAt name = f.take("name");
    const std::string expected = rank_file(static_cast<int64_t>(manifest.file_bytes.size()));
    if (name.text() != expected) name.refuse(format_text("\"{}\"", expected));
    manifest.file_bytes.push_back(f.take("bytes").integer<int64_t>(0, kMost));
    f.require_all_taken();
  }
  if (manifest.file_bytes.empty()) value.refuse("a list of at least one file");
}

void read_index_entry(Manifest& manifest, const ValueAt& value) {
  Members index(value);
  const ValueAt name = index.take("name"), hash = index.take("xxh3");
  if (name.text() != kIndexName) name.refuse(format_text("\"{}\"", kIndexName));
  manifest.index_bytes = index.take("bytes").integer<int64_t>(0, kMost);
  const std::string digits = hash.text();
  if (digits.size() != kDigits ||
      digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
    hash.refuse("16 hexadecimal digits");
  }
  manifest.index_hash = std::stoull(digits, nullptr, 16);
  index.require_all_taken();
}

void read_formats(Manifest& manifest, const ValueAt& value) {
  for (const auto& [name, format] : value.entries()) {
    const auto* const kept = std::ranges::find(kKeptNames, name);
    const kernels::Format* const known = format_named(format.text());
    if (kept == kKeptNames.end())
      format.refuse("of a state: master, exp_avg, exp_avg_sq, published");
    if (known == nullptr) format.refuse("a format that this release knows");
    manifest.formats.at(static_cast<size_t>(kept - kKeptNames.begin())) = *known;
  }
}

}  // namespace

std::string rank_file(int64_t rank) { return format_text("rank-{:05d}.safetensors", rank); }
std::string_view name_of(Kept kept) { return kKeptNames.at(static_cast<size_t>(kept)); }

int64_t Manifest::Parameter::count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::string to_json(const Manifest& manifest) {
  Json parameters = Json::array(), formats = Json::object(), files = Json::array();
  for (const Manifest::Parameter& p : manifest.parameters) {
    parameters.push_back({{"name", p.name},
                          {"shape", p.shape},
                          {"trainable", p.trainable},
                          {"root", p.root},
                          {"group", p.group}});
  }
  for (size_t i = 0; i < kKept; ++i) {
    if (manifest.formats.at(i)) formats[kKeptNames.at(i)] = format_name(*manifest.formats.at(i));
  }
  for (size_t rank = 0; rank < manifest.file_bytes.size(); ++rank) {
    files.push_back(
        {{"name", rank_file(static_cast<int64_t>(rank))}, {"bytes", manifest.file_bytes[rank]}});
  }
  const Json json = {{"format", kManifestFormat},
                     {"version", kManifestVersion},
                     {"library", manifest.library},
                     {"id", manifest.id},
                     {"formats", formats},
                     {"files", files},
                     {"index",
                      {{"name", kIndexName},
                       {"bytes", manifest.index_bytes},
                       {"xxh3", format_text("{:016x}", manifest.index_hash)}}},
                     {"progress", Json::parse(manifest.progress)},
                     {"configuration", Json::parse(manifest.configuration)},
                     {"parameters", parameters},
                     {"xxh3", std::string(kDigits, '0')}};
  std::string text = json.dump(1) + "\n";
  text.replace(text.size() - kManifestEnd.size() - kDigits, kDigits, seal_of(text));
  return text;
}

Manifest parse_manifest(std::string_view json, const std::string& path) {
  const config::Subject subject{path, OTR_E_CORRUPT};
  config::Node root;
  try {
    root = config::parse_document(json, {path, kMaxManifest, kMaxValues});
  } catch (const Error& error) {
    fail(OTR_E_CORRUPT, "{}: {}", path, error.what());
  }
  Manifest manifest;
  Members m(ValueAt(subject, root));
  const ValueAt format = m.take("format"), version = m.take("version");
  if (format.text() != kManifestFormat) format.refuse(format_text("\"{}\"", kManifestFormat));
  if (const auto of = version.integer<int64_t>(1, kMost); of > kManifestVersion) {
    fail(OTR_E_UNSUPPORTED,
         "{}: a checkpoint of format version {}; this release reads up to {}: use a later one",
         path, of, kManifestVersion);
  }
  require_sealed(m.take("xxh3"), json);
  manifest.library = m.take("library").text();
  manifest.id = m.take("id").text();
  read_formats(manifest, m.take("formats"));
  read_files(manifest, m.take("files"));
  read_index_entry(manifest, m.take("index"));
  manifest.progress = config::to_json(m.take("progress").node()).dump();
  manifest.configuration = config::to_json(m.take("configuration").node()).dump();
  read_parameters(manifest, m.take("parameters"));
  m.require_all_taken();
  return manifest;
}

std::string read_manifest(const Folder& folder) {
  const std::optional<File> file = folder.find_file(kManifestName);
  if (!file) {
    fail(OTR_E_NOT_FOUND, "{}: there is no {}: this is no checkpoint of Outrigger", folder.path(),
         kManifestName);
  }
  const int64_t bytes = file->size();
  if (bytes > static_cast<int64_t>(kMaxManifest)) {
    fail(OTR_E_CORRUPT, "{}: {} bytes; at most {} are read", file->path(), bytes, kMaxManifest);
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace outrigger::checkpoint
