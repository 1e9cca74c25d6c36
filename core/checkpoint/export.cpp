// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/export.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/decoder.h"
#include "core/checkpoint/safetensors.h"

namespace outrigger::checkpoint {

using kernels::Format;

namespace {

constexpr std::string_view kOneFile = "model.safetensors";
constexpr std::string_view kShardIndex = "model.safetensors.index.json";

struct Shard {
  std::string name;
  std::vector<int64_t> roots;  // their numbers in the manifest
  int64_t bytes = 0;           // of tensors
};

// Whether it is "model-00001-of-00003.safetensors".
bool is_shard_name(std::string_view name) {
  constexpr std::string_view kBegin = "model-", kEnd = ".safetensors";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  const size_t of = name.find("-of-");
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return of != std::string_view::npos && digits(name.substr(0, of)) && digits(name.substr(of + 4));
}

Dtype dtype_of(Format format) {
  return format == Format::bfloat16  ? Dtype::bf16
         : format == Format::float16 ? Dtype::f16
                                     : Dtype::f32;
}

// A file is full before the tensor that would make it larger than `most`; one that is larger by
// itself has a file of its own.
std::vector<Shard> shards_of(const Manifest& manifest, Format format, int64_t most) {
  std::vector<Shard> shards(1);
  for (size_t i = 0; i < manifest.parameters.size(); ++i) {
    const Manifest::Parameter& p = manifest.parameters[i];
    if (p.root != static_cast<int64_t>(i)) continue;
    const int64_t bytes = p.count() * size_of(dtype_of(format));
    if (most > 0 && !shards.back().roots.empty() && shards.back().bytes > most - bytes) {
      shards.emplace_back();
    }
    shards.back().roots.push_back(p.root);
    shards.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1
                         ? std::string(kOneFile)
                         : format_text("model-{:05d}-of-{:05d}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// "pt" makes transformers read it. The safetensors package notes tied tensors in the same way.
Metadata metadata_of(const Manifest& manifest, const Shard& shard) {
  Metadata metadata{{"format", "pt"}};
  for (const Manifest::Parameter& p : manifest.parameters) {
    const Manifest::Parameter& root = manifest.parameters[static_cast<size_t>(p.root)];
    if (&root == &p || p.name == "format") continue;
    if (std::ranges::binary_search(shard.roots, p.root)) metadata.emplace(p.name, root.name);
  }
  return metadata;
}

std::string index_text(const Manifest& manifest, const std::vector<Shard>& shards) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  auto& entries = map.get_ref<nlohmann::ordered_json::object_t&>();
  int64_t total = 0;
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const int64_t root : shard.roots) {
      // Behind the others: by its name, the map would look at all of them first.
      entries.emplace_back(manifest.parameters[static_cast<size_t>(root)].name, shard.name);
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  return index.dump(2) + "\n";
}

// Files that get their names at the end, all or none as far as a file system can.
class NewFiles {
 public:
  NewFiles(Folder& folder, bool replace) : folder_(folder), replace_(replace) {}
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;
  ~NewFiles() {
    for (const auto& [temporary, name] : pending_) {
      try {
        folder_.remove_all(temporary);
      } catch (const std::exception&) {
        // the failure that led here is the one to report
      }
    }
  }

  void require_free(std::string_view name) const {
    if (replace_ || !folder_.has(name)) return;
    fail(OTR_E_DUPLICATE, "{}: there is such a file: name another one, or set replace",
         folder_.path_of(name));
  }
  // The name to write under.
  std::string add(std::string_view name) {
    require_free(name);
    for (int64_t i = 0;; ++i) {
      std::string temporary = format_text(".tmp-{}-{}-{}", pending_.size(), getpid(), i);
      if (folder_.has(temporary)) continue;
      pending_.emplace_back(temporary, name);
      return temporary;
    }
  }
  // In the order in which they were added.
  void name_all() {
    for (const auto& [temporary, name] : pending_) require_free(name);
    while (!pending_.empty()) {
      folder_.rename(pending_.front().first, pending_.front().second);
      pending_.erase(pending_.begin());
    }
    folder_.sync();
  }

 private:
  Folder& folder_;
  bool replace_;
  std::vector<std::pair<std::string, std::string>> pending_;  // temporary name, name
};

void write_shard(Decoder& decoder, const Manifest& manifest, Folder& folder,
                 const std::string& name, const Shard& shard, Format format) {
  const int64_t size = size_of(dtype_of(format));
  std::vector<TensorSpec> tensors;
  for (const int64_t root : shard.roots) {
    const Manifest::Parameter& p = manifest.parameters[static_cast<size_t>(root)];
    tensors.push_back({p.name, dtype_of(format), p.shape});
  }
  Writer writer(folder, name, std::move(tensors), metadata_of(manifest, shard));
  std::vector<float> values;
  std::vector<std::byte> rounded;
  for (size_t i = 0; i < shard.roots.size(); ++i) {
    const int64_t root = shard.roots[i];
    const int64_t count = manifest.parameters[static_cast<size_t>(root)].count();
    for (int64_t first = 0; first < count; first += kDecodedAtATime) {
      values.resize(static_cast<size_t>(std::min(kDecodedAtATime, count - first)));
      decoder.read_weight(root, first, values);
      if (format == Format::float32) {
        writer.write(i, first * size, std::as_bytes(std::span(values)));
        continue;
      }
      rounded.resize(values.size() * static_cast<size_t>(size));
      kernels::convert(rounded.data(), format, values.data(), Format::float32,
                       static_cast<int64_t>(values.size()));
      writer.write(i, first * size, rounded);
    }
  }
  writer.finish();
}

void export_file(Source& source, const Manifest& manifest, Files& files, const std::string& path,
                 const ExportOptions& options) {
  const size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  Folder folder = Folder::open(files, slash == std::string::npos ? "."
                                      : slash == 0               ? "/"
                                                                 : path.substr(0, slash));
  require_plain_name(name);
  if (folder.has_folder(name)) {
    fail(OTR_E_DUPLICATE,
         "{}: it is a folder: name a file in it, or set max_shard_bytes for files of that size "
         "there",
         folder.path_of(name));
  }
  const Shard all = std::move(shards_of(manifest, options.format, 0).front());
  NewFiles written(folder, options.replace);
  Decoder decoder(source, manifest);
  write_shard(decoder, manifest, folder, written.add(name), all, options.format);
  written.name_all();
}

// With an index that is there, transformers reads the files that it names; without one,
// model.safetensors. So what is replaced goes before the new files get their names: a reader may
// find no model for a moment, and never one of two halves.
void remove_former(Folder& folder, const std::vector<Shard>& shards) {
  std::vector<std::string> former = folder.names();
  std::erase_if(former, [](const std::string& name) {
    return name != kOneFile && name != kShardIndex && !is_shard_name(name);
  });
  if (former.empty()) return;
  if (std::ranges::find(former, kShardIndex) != former.end()) {
    folder.remove_file(kShardIndex);
    folder.sync();
  }
  for (const std::string& name : former) {
    const bool kept = std::ranges::find(shards, name, &Shard::name) != shards.end();
    if (name != kShardIndex && !kept) folder.remove_file(name);
  }
}

void export_folder(Source& source, const Manifest& manifest, Files& files, const std::string& path,
                   const ExportOptions& options) {
  Folder folder = Folder::open(files, path);
  const std::vector<Shard> shards = shards_of(manifest, options.format, options.max_shard_bytes);
  NewFiles written(folder, options.replace);
  for (const std::string_view name : {kOneFile, kShardIndex}) written.require_free(name);
  for (const std::string& name : folder.names()) {
    if (is_shard_name(name)) written.require_free(name);
  }
  Decoder decoder(source, manifest);
  for (const Shard& shard : shards) {
    write_shard(decoder, manifest, folder, written.add(shard.name), shard, options.format);
  }
  if (shards.size() > 1) {
    folder.write_text(written.add(kShardIndex), index_text(manifest, shards));
  }
  if (options.replace) remove_former(folder, shards);
  written.name_all();
}

}  // namespace

void export_weights(Source& source, const Manifest& manifest, Files& files, const std::string& path,
                    const ExportOptions& options) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    fail(OTR_E_ARGUMENT, "'{}' is no path of a file", printable(path));
  }
  if (options.max_shard_bytes == 0) {
    export_file(source, manifest, files, path, options);
  } else {
    export_folder(source, manifest, files, path, options);
  }
}

}  // namespace outrigger::checkpoint
