// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/huggingface/properties.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/import.h"
#include "core/checkpoint/lock.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/source.h"
#include "tests/fuzz/memory_files.h"

namespace otr_fuzz_huggingface {
namespace {

using namespace outrigger;              // NOLINT(google-build-using-namespace)
using namespace outrigger::checkpoint;  // NOLINT(google-build-using-namespace)
using Json = nlohmann::ordered_json;
using otr_fuzz::MemoryFiles;

constexpr std::array<const char*, kFiles> kPaths{"model/model.safetensors.index.json",
                                                 "model/a.safetensors", "model/b.safetensors"};
constexpr int32_t kRefusals[] = {OTR_E_CORRUPT,  OTR_E_NOT_FOUND, OTR_E_UNSUPPORTED,
                                 OTR_E_ARGUMENT, OTR_E_SHAPE,     OTR_E_DUPLICATE};

std::string fault_of(const Error& error) {
  const std::string text = error.what();
  if (std::ranges::find(kRefusals, error.status()) == std::end(kRefusals)) {
    return format_text("status {}: {}", error.status(), text);
  }
  return printable(text, 4000) == text ? "" : "a message that is not one line: " + text;
}

// Of what was imported: the values of a tensor as they were kept, by its name.
std::map<std::string, std::string> imported(MemoryFiles& files) {
  const Folder parent = Folder::open(files, "out");
  const Manifest manifest = parse_manifest(read_manifest(open_checkpoint(parent, "x")), "out/x");
  Source source(open_checkpoint(parent, "x"), manifest);
  source.verify();
  const Reader reader(open_checkpoint(parent, "x"), rank_file(0));
  std::map<std::string, std::string> found;
  for (const Manifest::Parameter& p : manifest.parameters) {
    const Manifest::Parameter& root = manifest.parameters[static_cast<size_t>(p.root)];
    std::string& bytes = found[p.name];
    if (root.count() == 0) continue;
    const Entry& entry = reader.at(tensor_name(root, Kept::master, "", 0, root.count()));
    bytes.resize(static_cast<size_t>(entry.bytes));
    reader.read(entry, 0, std::as_writable_bytes(std::span(bytes)));
  }
  return found;
}

float widened(std::string_view bytes, size_t at) {
  uint16_t half = 0;
  std::memcpy(&half, bytes.data() + at, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// As they are kept beside others: bfloat16 widened, where kept has twice the bytes. Of other dtypes
// only the number of bytes is compared.
bool holds(const Entry& entry, std::string_view read, std::string_view kept) {
  if (kept.size() == read.size() && entry.dtype != Dtype::f16) return kept == read;
  if (entry.dtype != Dtype::bf16 || kept.size() != 2 * read.size()) {
    return kept.size() %
               std::max<size_t>(1, read.size() / static_cast<size_t>(size_of(entry.dtype))) ==
           0;
  }
  for (size_t i = 0; 2 * i < read.size(); ++i) {
    const float value = widened(read, 2 * i);
    if (std::memcmp(&value, kept.data() + 4 * i, sizeof value) != 0) return false;
  }
  return true;
}

// The index as another reader of JSON has it, with what each file holds.
std::string fault_of_import(MemoryFiles& files, const Model& model) {
  const Json index =
      Json::parse(model[0].starts_with("\xEF\xBB\xBF") ? model[0].substr(3) : model[0]);
  const std::map<std::string, std::string> found = imported(files);
  std::set<std::string> named, tied;  // tied: what metadata says
  for (const auto& [tensor, file] : index.at("weight_map").items()) {
    named.insert(tensor);
    const Reader reader(Folder::open(files, "model"), file.get<std::string>());
    for (const auto& [key, value] : reader.metadata()) tied.insert(key);
    const Entry* const entry = reader.find(tensor);
    if (entry == nullptr) return format_text("'{}' is not in its file", tensor);
    std::string bytes(static_cast<size_t>(entry->bytes), '\0');
    reader.read(*entry, 0, std::as_writable_bytes(std::span(bytes)));
    const auto kept = found.find(tensor);
    if (kept == found.end()) return format_text("'{}' was lost", tensor);
    if (!holds(*entry, bytes, kept->second)) return format_text("'{}' has other values", tensor);
  }
  for (const auto& [name, bytes] : found) {
    if (!named.contains(name) && !tied.contains(name)) {
      return format_text("'{}' is nobody's", name);
    }
  }
  return "";
}

}  // namespace

std::string text_of(const Model& model) { return otr_fuzz::joined(model); }

Model model_of(std::string_view text) {
  Model model;
  otr_fuzz::part(text, model);
  return model;
}

Verdict check(const Model& model) try {
  Verdict verdict;
  MemoryFiles files;
  files.add_folder("model");
  files.add_folder("out");
  for (size_t i = 0; i < kFiles; ++i) {
    if (!model.at(i).empty()) files.add_file(kPaths.at(i), model.at(i));
  }
  auto before = files.files();
  try {
    import_weights(files, "model", "out", "x", {});
    verdict.imported = true;
    verdict.broken = fault_of_import(files, model);
  } catch (const Error& error) {
    verdict.broken = fault_of(error);
    auto after = files.files();
    after.erase("out/" + std::string(kLockName));
    if (verdict.broken.empty() && after != before) verdict.broken = "a refusal left something";
  }
  if (verdict.broken.empty() && !files.escaped().empty()) {
    verdict.broken = files.escaped() + " was opened";
  }
  if (verdict.broken.empty() && files.open_descriptors() > 0) {
    verdict.broken = "descriptors are left";
  }
  return verdict;
} catch (const std::exception& error) {
  return {false, format_text("an exception that is no Error: {}", error.what())};
}

}  // namespace otr_fuzz_huggingface
