// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/checkpoint/mutate.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/checkpoint/checksums.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/planes.h"
#include "core/checkpoint/safetensors.h"

namespace otr_fuzz_checkpoint {
namespace {

using namespace outrigger;              // NOLINT(google-build-using-namespace)
using namespace outrigger::checkpoint;  // NOLINT(google-build-using-namespace)

const std::string_view kPieces[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    " ",
                                    "\n",
                                    "null",
                                    "true",
                                    "-1",
                                    "0",
                                    "2",
                                    "1.5",
                                    "1e999",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "72057594037927936",
                                    "\"version\": 2,",
                                    "\"id\": \"x\",",
                                    "\"root\": 0",
                                    "\"trainable\": false",
                                    "\"block8\"",
                                    "\"float64\"",
                                    "rank-00001.safetensors",
                                    "../a",
                                    "\\u0000",
                                    "\xFF",
                                    "\xC3\xA9"};

constexpr const char* kFormats[] = {"float32", "bfloat16", "float16",
                                    "split",   "block8",   "positive_block8"};

constexpr int64_t kNumbers[] = {-1,
                                0,
                                1,
                                2,
                                255,
                                256,
                                257,
                                600,
                                int64_t{1} << 32,
                                int64_t{1} << 56,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};

void change_bytes(std::string& text, Random& random) {
  const size_t at = below(random, text.size() + 1);
  switch (below(random, 6)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
      break;
    case 1:
      text.insert(at, kPieces[below(random, std::size(kPieces))]);
      break;
    case 2:
      text.erase(at, below(random, 8) + 1);
      break;
    case 3:
      text.insert(at, text.substr(below(random, text.size() + 1), below(random, 64)));
      break;
    case 4:
      if (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        text[at] = static_cast<char>('0' + below(random, 10));
      }
      break;
    default:
      text.resize(at);
  }
}

// What manifest and index say.
struct Told {
  Manifest manifest;
  Index index;
};

std::optional<Told> read_told(const Bundle& bundle) try {
  otr_fuzz::MemoryFiles files;
  fill(files, bundle);
  const Folder folder = Folder::open(files, "dir/a");
  Told told{parse_manifest(read_manifest(folder), "manifest"), {}};
  told.index = read_index(folder, told.manifest);
  return told;
} catch (const Error&) {
  return std::nullopt;
}

void change_manifest(Manifest& m, Random& random) {
  const auto number = [&] { return kNumbers[below(random, std::size(kNumbers))]; };
  if (m.parameters.empty()) return;
  Manifest::Parameter& p = m.parameters[below(random, m.parameters.size())];
  switch (below(random, 9)) {
    case 0:
      p.name = m.parameters[below(random, m.parameters.size())].name;
      break;
    case 1:
      p.name = below(random, 2) == 0 ? "host" : "p/master";
      break;
    case 2:
      p.shape.push_back(number());
      break;
    case 3:
      if (!p.shape.empty()) p.shape[below(random, p.shape.size())] = number();
      break;
    case 4:
      p.trainable = !p.trainable;
      break;
    case 5:
      p.root = number();
      break;
    case 6: {
      const kernels::Format* const format = format_named(kFormats[below(random, 6)]);
      m.formats.at(below(random, kKept)) =
          below(random, 3) == 0 ? std::nullopt : std::optional(*format);
      break;
    }
    case 7:
      m.file_bytes.resize(below(random, 4));
      break;
    default:
      m.parameters.push_back(p);
  }
}

void change_index(Index& index, Random& random) {
  if (index.rows.empty()) return;
  const auto number = [&] { return kNumbers[below(random, std::size(kNumbers))]; };
  const size_t at = below(random, index.rows.size());
  IndexRow& row = index.rows[at];
  switch (below(random, 6)) {
    case 0:
      index.rows.push_back(row);
      break;
    case 1:
      index.rows.erase(index.rows.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 2:
      std::swap(row, index.rows[below(random, index.rows.size())]);
      break;
    case 3:
      index.checksums.resize(below(random, index.checksums.size() + 2));
      break;
    default: {
      int64_t* const columns[] = {&row.rank,  &row.parameter, &row.kept,    &row.plane,
                                  &row.first, &row.count,     &row.checksum};
      *columns[below(random, std::size(columns))] = number();
    }
  }
}

// Sums of what the files hold, so that changed values are taken for right.
void agree_with_files(Told& told, const Bundle& bundle) {
  otr_fuzz::MemoryFiles files;
  fill(files, bundle);
  const Folder folder = Folder::open(files, "dir/a");
  std::vector<uint64_t> sums;
  for (IndexRow& row : told.index.rows) {
    std::vector<uint64_t> own{0};
    try {
      const Reader reader(folder, rank_file(row.rank));
      const Manifest::Parameter& p =
          told.manifest.parameters.at(static_cast<size_t>(row.parameter));
      const bool is_shape = std::ranges::none_of(p.shape, [](int64_t n) { return n < 0; }) &&
                            bytes_of(p.shape, Dtype::u8) >= 0;
      if (!is_shape || row.first < 0 || row.count < 0 || row.count > p.count() ||
          row.first > p.count() - row.count) {
        continue;  // it has no name
      }
      const auto planes =
          planes_of(told.manifest.formats.at(static_cast<size_t>(row.kept)).value());
      if (row.plane < 0 || row.plane >= static_cast<int64_t>(planes.size())) continue;
      const Entry& entry = reader.at(tensor_name(p, static_cast<Kept>(row.kept),
                                                 planes[static_cast<size_t>(row.plane)].suffix,
                                                 row.first, row.count));
      std::vector<std::byte> bytes(static_cast<size_t>(entry.bytes));
      reader.read(entry, 0, bytes);
      Hasher hasher;
      hasher.add(bytes);
      own = hasher.take();
    } catch (const std::exception&) {
      // a part of the host, or nothing that is there
    }
    row.checksum = static_cast<int64_t>(sums.size());
    sums.insert(sums.end(), own.begin(), own.end());
  }
  told.index.checksums = sums;
}

void change_told(Bundle& bundle, Random& random) {
  std::optional<Told> told = read_told(bundle);
  if (!told) told = read_told(bundle = seeds()[below(random, seeds().size())]);
  if (!told) return;
  if (below(random, 2) == 0) change_manifest(told->manifest, random);
  if (below(random, 2) == 0) change_index(told->index, random);
  if (below(random, 2) == 0) agree_with_files(*told, bundle);
  otr_fuzz::MemoryFiles files;
  files.add_folder("new");
  Folder folder = Folder::open(files, "new");
  write_index(folder, told->index, told->manifest);
  bundle[kIndex] = files.files().at("new/index.safetensors");
  bundle[kManifest] = to_json(told->manifest);
}

}  // namespace

Bundle mutate(Bundle bundle, Random& random) {
  std::string& file = bundle.at(below(random, kFiles));
  switch (below(random, 10)) {
    case 0:
    case 1:
      change_bytes(file, random);
      break;
    case 2:
      change_bytes(bundle[kManifest], random);
      break;
    case 3:
      file.resize(below(random, file.size() + 1));
      break;
    case 4:
      std::swap(file, bundle.at(below(random, kFiles)));
      break;
    case 5: {
      const size_t which = below(random, kFiles);
      bundle.at(which) = seeds()[below(random, seeds().size())].at(which);
      break;
    }
    case 6: {
      std::string& tensors = bundle.at(kIndex + below(random, kFiles - kIndex));
      tensors = otr_fuzz_safetensors::mutate(tensors, random);
      break;
    }
    default:
      change_told(bundle, random);
  }
  if (below(random, 3) == 0) reseal(bundle);
  return bundle;
}

}  // namespace otr_fuzz_checkpoint
