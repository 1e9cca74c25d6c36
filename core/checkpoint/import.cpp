// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/import.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/assembly.h"
#include "core/checkpoint/decoder.h"
#include "core/checkpoint/safetensors.h"
#include "core/config/members.h"

namespace outrigger::checkpoint {

using kernels::Format;

namespace {

constexpr std::string_view kWholeModel = "model.safetensors";
constexpr std::string_view kModelIndex = "model.safetensors.index.json";
constexpr size_t kMaxModelIndex = size_t{1} << 28, kMaxMapped = size_t{1} << 23;

std::optional<Format> format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return Format::float32;
    case Dtype::bf16:
      return Format::bfloat16;
    case Dtype::f16:
      return Format::float16;
    case Dtype::f64:
      return Format::float64;
    default:
      return std::nullopt;
  }
}

// Where the weights are: paths of files, with the tensors that an index says each has.
struct Sources {
  struct Part {
    std::string path;
    std::optional<std::set<std::string, std::less<>>> names;  // nothing: all that are there
  };
  std::vector<Part> parts;
};

std::string path_in(const std::string& folder, std::string_view name) {
  require_plain_name(name);
  return folder + (folder.ends_with('/') ? "" : "/") + std::string(name);
}

std::string text_of_file(const File& file, size_t most) {
  const int64_t bytes = file.size();
  if (bytes > static_cast<int64_t>(most)) {
    fail(OTR_E_CORRUPT, "{}: {} bytes; at most {} are read", file.path(), bytes, most);
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Only "weight_map" counts: others write what they like beside it.
Sources sources_of_index(const std::string& folder, const File& file) {
  const std::string text = text_of_file(file, kMaxModelIndex);
  const config::Subject subject{file.path(), OTR_E_CORRUPT};
  config::Node root;
  try {
    root = config::parse_document(text, {file.path(), kMaxModelIndex, kMaxMapped});
  } catch (const Error& error) {
    fail(OTR_E_CORRUPT, "{}: {}", file.path(), error.what());
  }
  config::Members members(config::ValueAt(subject, root));
  std::map<std::string, std::set<std::string, std::less<>>> files;
  for (const auto& [tensor, name] : members.take("weight_map").entries()) {
    const std::string plain = name.text();
    try {
      require_plain_name(plain);
    } catch (const Error& error) {
      fail(OTR_E_CORRUPT, "{}: tensor {}: {}", file.path(), in_quotes(tensor), error.what());
    }
    files[plain].insert(tensor);
  }
  Sources sources;
  for (auto& [name, tensors] : files) {
    sources.parts.push_back({path_in(folder, name), std::move(tensors)});
  }
  return sources;
}

Sources sources_of(Files& files, const std::string& source) {
  constexpr std::string_view kIndexEnd = ".index.json";
  if (source.ends_with(kIndexEnd)) {
    const size_t slash = source.rfind('/');
    return sources_of_index(slash == std::string::npos ? "." : source.substr(0, slash + 1),
                            File::open(files, source));
  }
  if (!is_folder(files, source)) return {{{source, {}}}};
  // As transformers looks for them.
  const Folder folder = Folder::open(files, source);
  if (folder.has(kWholeModel)) return {{{path_in(source, kWholeModel), {}}}};
  if (folder.has(kModelIndex)) {
    return sources_of_index(source, File::open(files, path_in(source, kModelIndex)));
  }
  fail(OTR_E_NOT_FOUND, "{}: there is no {} and no {}: name a safetensors file", folder.path(),
       kWholeModel, kModelIndex);
}

class Importer {
 public:
  Importer(Files& files, Sources sources, const ImportOptions& options)
      : files_(files), sources_(std::move(sources)), options_(options) {
    for (size_t i = 0; i < sources_.parts.size(); ++i) look_at(i);
    if (tensors_.empty()) fail(OTR_E_NOT_FOUND, "there is no tensor to import");
  }

  [[nodiscard]] Format weights() const {
    const Format first = tensors_.front().format;
    const bool same =
        std::ranges::all_of(tensors_, [&](const Tensor& tensor) { return tensor.format == first; });
    return same && first != Format::float64 ? first : Format::float32;
  }

  void write_to(Assembly& assembly) const {
    for (const Tensor& tensor : tensors_) assembly.add({tensor.entry.name, tensor.entry.shape});
    for (const auto& [alias, root] : aliases()) {
      AssembledParameter parameter{alias, root->entry.shape};
      parameter.alias_of = root->entry.name;
      assembly.add(std::move(parameter));
    }
    std::optional<Reader> reader;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor& tensor = tensors_[i];
      if (i == 0 || tensors_[i - 1].part != tensor.part) {
        reader.emplace(File::open(files_, sources_.parts[tensor.part].path));
      }
      copy(*reader, tensor, assembly);
    }
  }

 private:
  struct Tensor {
    Entry entry;
    Format format;
    size_t part;
  };

  void look_at(size_t number) {
    const Sources::Part& part = sources_.parts[number];
    const Reader reader(File::open(files_, part.path));
    size_t mapped = 0;
    for (const Entry& entry : reader.entries()) {
      if (part.names && !part.names->contains(entry.name)) {
        fail(OTR_E_CORRUPT, "{}: tensor {} is in this file, and the index does not say so",
             reader.path(), in_quotes(entry.name));
      }
      ++mapped;
      const auto format = format_of(entry.dtype);
      if (!format && options_.skip_other_dtypes) continue;
      if (!format) {
        fail(OTR_E_UNSUPPORTED,
             "{}: tensor {} is {}, and a parameter is F32, BF16, F16 or F64: leave out what is "
             "neither by skip_other_dtypes",
             reader.path(), in_quotes(entry.name), name_of(entry.dtype));
      }
      if (!names_.emplace(entry.name, tensors_.size()).second) {
        fail(OTR_E_CORRUPT, "{}: tensor {} is in two files", reader.path(), in_quotes(entry.name));
      }
      tensors_.push_back({entry, *format, number});
    }
    if (part.names && mapped != part.names->size()) {
      const auto missing = std::ranges::find_if(
          *part.names, [&](const std::string& name) { return reader.find(name) == nullptr; });
      fail(OTR_E_CORRUPT, "{}: tensor {} is not in this file, and the index says so", reader.path(),
           in_quotes(*missing));
    }
    for (const auto& [key, value] : reader.metadata()) noted_.emplace(key, value);
  }

  // As the safetensors package notes tied tensors.
  [[nodiscard]] std::vector<std::pair<std::string, const Tensor*>> aliases() const {
    std::vector<std::pair<std::string, const Tensor*>> found;
    for (const auto& [key, value] : noted_) {
      if (key == "format" || key.empty() || names_.contains(key)) continue;
      const auto root = names_.find(value);
      if (root != names_.end()) found.emplace_back(key, &tensors_[root->second]);
    }
    return found;
  }

  static void copy(const Reader& reader, const Tensor& tensor, Assembly& assembly) {
    const Entry* const entry = reader.find(tensor.entry.name);
    if (entry == nullptr || *entry != tensor.entry) {
      fail(OTR_E_CORRUPT, "{}: tensor {} changed while it was imported", reader.path(),
           in_quotes(tensor.entry.name));
    }
    const int64_t size = size_of(entry->dtype), count = entry->bytes / size;
    std::vector<std::byte> bytes;
    for (int64_t first = 0; first < count; first += kDecodedAtATime) {
      const int64_t n = std::min(kDecodedAtATime, count - first);
      bytes.resize(static_cast<size_t>(n * size));
      reader.read(*entry, first * size, bytes);
      assembly.write(tensor.entry.name, Kept::master, first,
                     {true, bytes.data(), tensor.format, n, true, {n}, {1}});
    }
  }

  Files& files_;
  const Sources sources_;
  const ImportOptions options_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> names_;  // number in tensors_
  Metadata noted_;
};

}  // namespace

void import_weights(Files& files, const std::string& source, const std::string& directory,
                    const std::string& tag, const ImportOptions& options) {
  const Importer importer(files, sources_of(files, source), options);
  AssemblyOptions made;
  made.weights = importer.weights();
  made.replace = options.replace;
  Assembly assembly(files, directory, tag, made);
  importer.write_to(assembly);
  assembly.finish();
}

}  // namespace outrigger::checkpoint
