// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's folder holds, in two files that rank 0 writes last: manifest.json says what
// training it is of and names the files, index.safetensors where each run of values is, with
// checksums. Both are untrusted when they are read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/files.h"
#include "kernels/kernels.h"

namespace outrigger::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kIndexName = "index.safetensors";
[[nodiscard]] std::string rank_file(int64_t rank);  // "rank-00003.safetensors"

// What is kept of a parameter. Frozen ones have a published value only.
enum class Kept : uint8_t { master, exp_avg, exp_avg_sq, published };
inline constexpr size_t kKept = 4;
[[nodiscard]] std::string_view name_of(Kept kept);

struct Manifest {
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
    bool trainable = true;
    int64_t root = 0;  // its own index, or that of the one whose alias it is
    std::string group;
    [[nodiscard]] int64_t count() const;
  };
  std::string id;       // of this save: files of another one are refused
  std::string library;  // the version that wrote it
  std::vector<Parameter> parameters;
  std::array<std::optional<kernels::Format>, kKept> formats;  // of the states that there are
  std::string progress, configuration;                        // JSON
  std::vector<int64_t> file_bytes;                            // by rank
  int64_t index_bytes = 0;
  uint64_t index_hash = 0;  // XXH3-64 of the whole file
};

[[nodiscard]] std::string to_json(const Manifest& manifest);
// Throws OTR_E_CORRUPT, and OTR_E_UNSUPPORTED for a later version. path: for messages.
[[nodiscard]] Manifest parse_manifest(std::string_view json, const std::string& path);
// The text in a checkpoint's folder. Throws OTR_E_NOT_FOUND, OTR_E_CORRUPT.
[[nodiscard]] std::string read_manifest(const Folder& folder);

// A run of a parameter's values, one plane of it, or bytes of the host (parameter −1): a tensor of
// a rank's file.
struct IndexRow {
  int64_t rank = 0, parameter = -1, kept = 0, plane = 0;
  // Elements of the parameter; of the host's bytes XXH3-64 of their name, and how many.
  int64_t first = 0, count = 0;
  int64_t checksum = 0;  // the index of its first one
};
struct Index {
  std::vector<IndexRow> rows;
  std::vector<uint64_t> checksums;
};
// "layer.weight/exp_avg" of a whole parameter, "layer.weight/exp_avg[256:512]" of a part.
[[nodiscard]] std::string tensor_name(const Manifest::Parameter& parameter, Kept kept,
                                      std::string_view suffix, int64_t first, int64_t count);
// Of the host's bytes: the tensor's name, and IndexRow::first.
[[nodiscard]] std::string part_name(std::string_view part);
[[nodiscard]] int64_t part_hash(std::string_view part);

// Writes it and notes size and hash in the manifest.
void write_index(Folder& folder, const Index& index, Manifest& manifest);
// Throws OTR_E_CORRUPT unless it is that of the manifest: every state of every parameter is there,
// each element once.
[[nodiscard]] Index read_index(const Folder& folder, const Manifest& manifest);

}  // namespace outrigger::checkpoint
