// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/made.h"

#include <xxhash.h>

#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/checksums.h"
#include "core/engine/open_checkpoint.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr int64_t kCut = 256, kCount = 600;

std::string some_bytes(int64_t count, int64_t seed) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += static_cast<char>((i * 13 + seed * 29) % 101);
  return text;
}

}  // namespace

Made::Made() : ranks(2) {
  manifest.id = "00112233aabbccdd";
  manifest.library = "0.1.0";
  manifest.parameters = {{"w", {kCount}, true, 0, "default"},
                         {"f", {3, 5}, false, 1, "default"},
                         {"t", {kCount}, true, 0, "default"}};
  manifest.formats = {kernels::Format::float32, kernels::Format::float32, std::nullopt,
                      kernels::Format::bfloat16};
  manifest.progress = R"({"version":1,"imported":{"applied":3,"other_updates":[]}})";
  manifest.configuration = "{}";
  const auto add = [&](int64_t rank, const IndexRow& row, TensorSpec spec, std::string bytes) {
    index.rows.push_back(row);
    index.rows.back().rank = rank;
    index.rows.back().checksum = static_cast<int64_t>(index.checksums.size());
    if (!bytes.empty()) index.checksums.push_back(XXH3_64bits(bytes.data(), bytes.size()));
    ranks[static_cast<size_t>(rank)].push_back({std::move(spec), std::move(bytes)});
  };
  for (const int64_t rank : {0, 1}) {
    const int64_t first = rank == 0 ? 0 : kCut, count = rank == 0 ? kCut : kCount - kCut;
    for (const auto kept : {Kept::master, Kept::exp_avg}) {
      const auto number = static_cast<int64_t>(kept);
      add(rank, {0, 0, number, 0, first, count, 0},
          {tensor_name(manifest.parameters[0], kept, "", first, count), Dtype::f32, {count}},
          some_bytes(4 * count, rank + 3 * number));
    }
    if (rank == 0) {
      add(rank, {0, 1, 3, 0, 0, 15, 0}, {"f/published", Dtype::bf16, {3, 5}}, some_bytes(30, 9));
    }
    const std::string part = format_text("the host's bytes of rank {}", rank);
    const auto bytes = static_cast<int64_t>(part.size());
    add(rank, {0, -1, 0, 0, part_hash("place"), bytes, 0}, {"host/place", Dtype::u8, {bytes}},
        part);
    metadata.push_back({{"checkpoint", manifest.id}, {"rank", std::to_string(rank)}});
  }
}

void Made::write(const std::string& path) const {
  std::filesystem::create_directory(path + "/a");
  write_text(path + "/latest", "a\n");
  Folder folder = Folder::open(quick_files(), path + "/a");
  Manifest all = manifest;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<TensorSpec> specs;
    for (const Tensor& tensor : ranks[rank]) specs.push_back(tensor.spec);
    Writer writer(folder, rank_file(static_cast<int64_t>(rank)), specs, metadata[rank]);
    for (size_t i = 0; i < ranks[rank].size(); ++i) {
      writer.write(i, 0, bytes_of_text(ranks[rank][i].bytes));
    }
    writer.finish();
    all.file_bytes.push_back(writer.file_bytes());
  }
  write_index(folder, index, all);
  write_text(path + "/a/manifest.json", to_json(all));
}

std::string sealed(Json json) {
  json.erase("xxh3");
  std::string text = json.dump(1);
  text.erase(text.size() - 2);  // the last brace and the line's end in front of it
  text += ",\n \"xxh3\": \"";
  return text + format_text("{:016x}", XXH3_64bits(text.data(), text.size())) + "\"\n}\n";
}

void edit_manifest(const std::string& path, const std::function<void(Json&)>& edit) {
  const std::string file = path + "/a/manifest.json";
  Json json = Json::parse(read_text(file));
  edit(json);
  write_text(file, sealed(json));
}

std::string fault_of_open(const std::string& path) try {
  engine::OpenCheckpoint opened(path, "");
  const Json all = Json::parse(opened.describe());
  opened.verify();
  for (const Json& parameter : all["parameters"]) {
    std::vector<float> out(1);
    opened.read(parameter["name"].get<std::string>(), OTR_VALUE_MASTER, 0, out);
  }
  return "";
} catch (const Error& error) {
  return error.what();
}

}  // namespace outrigger::checkpoint::test
