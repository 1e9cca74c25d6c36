// SPDX-License-Identifier: Apache-2.0
// Shards from a checkpoint.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/lanes.h"
#include "core/base/text.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/planes.h"
#include "core/engine/shard_checkpoints.h"
#include "kernels/composed.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::Manifest;
using kernels::Format;
using optimizer::Shard;
using optimizer::StoredValue;

namespace {

using Planes = std::array<std::vector<std::byte>, 2>;

constexpr int64_t kRunAtATime = int64_t{1} << 20;  // elements; whole leaves

}  // namespace

// Elements from `first` on, as they were kept; in another format to nearest.
void ShardCheckpoints::put(const Value& to, int64_t first, int64_t count, Format from,
                           std::span<const std::vector<std::byte>> planes) {
  const StoredValue& stored = to.stored;
  if (stored.format == from) {
    const auto kinds = checkpoint::planes_of(from);
    for (size_t i = 0; i < kinds.size(); ++i) {
      std::ranges::copy(planes[i],
                        plane_of(to, i).begin() + static_cast<ptrdiff_t>(kinds[i].bytes(first)));
    }
    return;
  }
  checkpoint::OwnRun run;
  run.fill(from, planes, count);
  std::vector<float> values(static_cast<size_t>(count));
  run.read(values.data(), from, count);
  std::byte* const data = stored.data + kernels::plain_bytes_of(first, stored.format);
  if (kernels::is_composed(stored.format)) {
    kernels::write_composed(data, stored.beside + kernels::beside_bytes_of(first, stored.format),
                            stored.format, values.data(), count);
  } else {
    kernels::convert(data, stored.format, values.data(), Format::float32, count);
  }
}

// Of each shard its parameter there; −1: none, and not strict.
std::vector<int64_t> ShardCheckpoints::match(const Manifest& manifest, bool strict) const {
  std::map<std::string_view, int64_t> there;
  for (size_t i = 0; i < manifest.parameters.size(); ++i) {
    there.emplace(manifest.parameters[i].name, static_cast<int64_t>(i));
  }
  std::vector<int64_t> matched;
  std::set<int64_t> roots;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const auto found = there.find(names_[i]);
    if (found == there.end()) {
      if (strict) {
        fail(OTR_E_NOT_FOUND, "{}: the checkpoint has no parameter \"{}\" among its {}", call_,
             printable(names_[i]), manifest.parameters.size());
      }
      matched.push_back(-1);
      continue;
    }
    const int64_t root = manifest.parameters[static_cast<size_t>(found->second)].root;
    const Manifest::Parameter& p = manifest.parameters[static_cast<size_t>(root)];
    if (p.count() != shards_[i]->weights.count) {
      fail(OTR_E_SHAPE, "{}: \"{}\" has {} elements in the checkpoint, and the shard {}", call_,
           printable(names_[i]), p.count(), shards_[i]->weights.count);
    }
    matched.push_back(root);
    roots.insert(root);
  }
  for (size_t i = 0; strict && i < manifest.parameters.size(); ++i) {
    const Manifest::Parameter& p = manifest.parameters[i];
    if (roots.contains(p.root)) continue;
    fail(OTR_E_NOT_FOUND,
         "{}: the checkpoint has \"{}\", and no shard is called so: give all shards, or load "
         "weights only with strict = 0",
         call_, printable(p.name));
  }
  if (roots.empty() && !shards_.empty()) {
    fail(OTR_E_NOT_FOUND, "{}: no shard has the name of a parameter in the checkpoint", call_);
  }
  return matched;
}

std::vector<ShardCheckpoints::Wanted> ShardCheckpoints::wanted(const Manifest& manifest,
                                                               const checkpoint::Source& source,
                                                               const std::vector<int64_t>& matched,
                                                               bool weights_only) const {
  std::vector<Wanted> all;
  for (const Value& value : values()) {
    const int64_t saved = matched[value.shard];
    if (saved < 0 || value.count == 0) continue;
    if (weights_only && value.kept != Kept::master) continue;
    const bool trainable = manifest.parameters[static_cast<size_t>(saved)].trainable;
    const Kept there = value.kept == Kept::master && !trainable ? Kept::published : value.kept;
    if (!source.has(saved, there)) {
      fail(OTR_E_NOT_FOUND,
           "{}: the checkpoint has no {} of \"{}\", which the optimizer keeps: load weights only, "
           "or use the optimizer that it was made with",
           call_, checkpoint::name_of(there), printable(name_of(value)));
    }
    all.push_back({value, saved, there});
  }
  return all;
}

void ShardCheckpoints::read_all(const std::vector<Wanted>& all, const Manifest& manifest,
                                checkpoint::Source& source, bool takes) const {
  struct Part {
    const Wanted* wanted;
    Format format;
    int64_t first, count;
  };
  std::vector<Part> parts;
  for (const Wanted& w : all) {
    const Format format = *manifest.formats.at(static_cast<size_t>(w.there));
    for (int64_t first = 0; first < w.value.count; first += kRunAtATime) {
      parts.push_back({&w, format, first, std::min(kRunAtATime, w.value.count - first)});
    }
  }
  constexpr size_t kLanes = 4;
  struct Lane {
    checkpoint::Source::Cursors cursors;
    Planes planes;
  };
  std::array<Lane, kLanes> lanes;
  const auto read = [&](int64_t l, int64_t i) {
    Lane& lane = lanes.at(static_cast<size_t>(l));
    const Part& part = parts[static_cast<size_t>(i)];
    for (size_t plane = 0; plane < checkpoint::planes_of(part.format).size(); ++plane) {
      source.read(lane.cursors, part.wanted->saved, part.wanted->there, plane, part.first,
                  part.count, lane.planes.at(plane));
    }
  };
  const auto take = [&](int64_t l, int64_t i) {
    const Part& part = parts[static_cast<size_t>(i)];
    if (!takes) return;
    put(part.wanted->value, part.first, part.count, part.format,
        lanes.at(static_cast<size_t>(l)).planes);
  };
  in_lanes(kLanes, static_cast<int64_t>(parts.size()), "a load", read, take);
}

void ShardCheckpoints::load(const std::string& directory, const std::string& tag,
                            const LoadOptions& options) {
  const Folder parent = Folder::open(files_, directory);
  const std::string found = checkpoint::tag_or_latest(parent, tag);
  Folder folder = checkpoint::open_checkpoint(parent, found);
  const Manifest manifest = checkpoint::parse_manifest(checkpoint::read_manifest(folder),
                                                       folder.path_of(checkpoint::kManifestName));
  checkpoint::Source source(std::move(folder), manifest);
  const std::vector<int64_t> matched = match(manifest, options.strict);
  const std::vector<Wanted> all = wanted(manifest, source, matched, options.weights_only);
  std::optional<Progress> progress;
  config::OptimizerConfig config = optimizer_.config();
  std::vector<std::string> names;  // there
  if (!options.weights_only) {
    progress = saved_progress(manifest.progress, call_);
    config = config_of(*progress);
    for (const int64_t saved : matched) {
      names.push_back(manifest.parameters[static_cast<size_t>(saved)].name);
    }
  }
  read_all(all, manifest, source, false);  // all that can be refused comes before any change
  read_all(all, manifest, source, true);
  for (const Shard* shard : shards_) optimizer::publish(*shard);
  if (progress) resume(*progress, std::move(config), names);
}

}  // namespace outrigger::engine
