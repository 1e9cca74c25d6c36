// SPDX-License-Identifier: Apache-2.0
// Where each run of a checkpoint's values is.
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/checksums.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/planes.h"
#include "core/checkpoint/safetensors.h"

namespace outrigger::checkpoint {
namespace {

constexpr int64_t kColumns = 7;
constexpr const char *kRowsName = "rows", *kChecksumsName = "checksums";
constexpr int64_t kMaxIndex = int64_t{1} << 32;  // bytes that a reader asks memory for
static_assert(sizeof(IndexRow) == kColumns * sizeof(int64_t));

// Of a whole file.
uint64_t hash_of(const File& file) {
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  file.read_at(0, bytes);
  return XXH3_64bits(bytes.data(), bytes.size());
}

template <typename T>
std::vector<T> read_all(const Reader& reader, const char* name, Dtype dtype, int64_t columns) {
  const Entry* const found = reader.find(name);
  const size_t extents = columns > 1 ? 2 : 1;
  if (found == nullptr || found->dtype != dtype || found->shape.size() != extents ||
      (extents == 2 && found->shape[1] != columns)) {
    fail(OTR_E_CORRUPT, "{}: \"{}\" is no table of {} of {} columns", reader.path(), name,
         name_of(dtype), columns);
  }
  std::vector<T> values(static_cast<size_t>(found->bytes) / sizeof(T));
  reader.read(*found, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

class Check {
 public:
  Check(const Manifest& manifest, const Index& index, std::string path)
      : manifest_(manifest), index_(index), path_(std::move(path)) {}

  void run() {
    const auto sums = static_cast<int64_t>(index_.checksums.size());
    int64_t next = 0;  // the first checksum of the row
    for (size_t i = 0; i < index_.rows.size(); ++i) {
      const IndexRow& row = index_.rows[i];
      require(row.rank >= 0 && row.rank < static_cast<int64_t>(manifest_.file_bytes.size()), i,
              "names no file");
      require(row.count >= 0, i, "has a negative count");
      const int64_t bytes = row.parameter == -1 ? bytes_of_part(row, i) : bytes_of_state(row, i);
      require(row.checksum == next && blocks_of(bytes) <= sums - next, i, "has no checksums");
      next += blocks_of(bytes);
    }
    if (next != sums) {
      fail(OTR_E_CORRUPT, "{}: {} checksums, and the rows have {}", path_, sums, next);
    }
    require_all();
  }

 private:
  void require(bool holds, size_t row, const char* what) const {
    if (!holds) fail(OTR_E_CORRUPT, "{}: row {} {}", path_, row, what);
  }
  int64_t bytes_of_part(const IndexRow& row, size_t i) {
    require(row.kept == 0 && row.plane == 0, i, "names a state of the host");
    require(parts_.emplace(row.rank, row.first).second, i, "names a part that is there twice");
    return row.count;
  }
  int64_t bytes_of_state(const IndexRow& row, size_t i) {
    require(row.parameter >= 0 && row.parameter < static_cast<int64_t>(manifest_.parameters.size()),
            i, "names no parameter");
    const Manifest::Parameter& p = manifest_.parameters[static_cast<size_t>(row.parameter)];
    require(row.kept >= 0 && row.kept < static_cast<int64_t>(kKept) &&
                manifest_.formats.at(static_cast<size_t>(row.kept)).has_value(),
            i, "names no state");
    require(
        p.root == row.parameter && p.trainable != (static_cast<Kept>(row.kept) == Kept::published),
        i, "names a state that this parameter has not");
    const auto planes = planes_of(*manifest_.formats.at(static_cast<size_t>(row.kept)));
    require(row.plane >= 0 && row.plane < static_cast<int64_t>(planes.size()), i,
            "names no part of a format");
    const int64_t count = p.count();
    require(row.count > 0 && row.first >= 0 && row.first <= count &&
                row.count <= count - row.first && row.first % kernels::kLeaf == 0 &&
                (row.count % kernels::kLeaf == 0 || row.first + row.count == count),
            i, "is no run of its parameter in multiples of 256");
    runs_[{row.parameter, row.kept, row.plane}].emplace_back(row.first, row.count);
    return planes[static_cast<size_t>(row.plane)].bytes(row.count);
  }
  void require_all() {
    for (auto& [key, runs] : runs_) {
      std::ranges::sort(runs);
      int64_t next = 0;
      const auto& [parameter, kept, plane] = key;
      const Manifest::Parameter& p = manifest_.parameters[static_cast<size_t>(parameter)];
      for (const auto& [first, count] : runs) {
        if (first != next)
          lacks(p, kept, first < next ? "twice" : "not there", std::min(first, next));
        next = first + count;
      }
      if (next != p.count()) lacks(p, kept, "not there", next);
    }
    for (size_t i = 0; i < manifest_.parameters.size(); ++i) {
      const Manifest::Parameter& p = manifest_.parameters[i];
      const auto id = static_cast<int64_t>(i);
      if (p.root != id || p.count() == 0) continue;
      const auto weight = static_cast<int64_t>(p.trainable ? Kept::master : Kept::published);
      if (!runs_.contains({id, weight, 0})) lacks(p, weight, "not there", 0);
      for (int64_t kept = 0; kept < static_cast<int64_t>(kKept); ++kept) {
        if (!runs_.contains({id, kept, 0})) continue;
        const auto planes = planes_of(*manifest_.formats.at(static_cast<size_t>(kept)));
        for (size_t plane = 1; plane < planes.size(); ++plane) {
          if (runs_.contains({id, kept, static_cast<int64_t>(plane)})) continue;
          lacks(p, kept, "not there as a whole", 0);
        }
      }
    }
  }
  [[noreturn]] void lacks(const Manifest::Parameter& p, int64_t kept, const char* what,
                          int64_t element) const {
    fail(OTR_E_CORRUPT, "{}: {} of parameter \"{}\" is {} from element {} on", path_,
         name_of(static_cast<Kept>(kept)), printable(p.name), what, element);
  }

  const Manifest& manifest_;
  const Index& index_;
  const std::string path_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>> runs_;
  std::set<std::pair<int64_t, int64_t>> parts_;  // rank and hash
};

}  // namespace

std::string tensor_name(const Manifest::Parameter& parameter, Kept kept, std::string_view suffix,
                        int64_t first, int64_t count) {
  const std::string range =
      first == 0 && count == parameter.count() ? "" : format_text("[{}:{}]", first, first + count);
  return format_text("{}/{}{}{}", parameter.name, name_of(kept), suffix, range);
}

std::string part_name(std::string_view part) { return format_text("host/{}", part); }

int64_t part_hash(std::string_view part) {
  return static_cast<int64_t>(XXH3_64bits(part.data(), part.size()));
}

void write_index(Folder& folder, const Index& index, Manifest& manifest) {
  const auto rows = static_cast<int64_t>(index.rows.size());
  const auto sums = static_cast<int64_t>(index.checksums.size());
  Writer writer(folder, kIndexName,
                {{kRowsName, Dtype::i64, {rows, kColumns}}, {kChecksumsName, Dtype::u64, {sums}}},
                {{"checkpoint", manifest.id}});
  writer.write(0, 0, std::as_bytes(std::span(index.rows)));
  writer.write(1, 0, std::as_bytes(std::span(index.checksums)));
  writer.finish();
  manifest.index_bytes = writer.file_bytes();
  manifest.index_hash = hash_of(folder.open_file(kIndexName));
}

Index read_index(const Folder& folder, const Manifest& manifest) {
  File file = folder.open_file(kIndexName);
  const int64_t bytes = file.size();
  if (bytes != manifest.index_bytes || bytes > kMaxIndex) {
    fail(OTR_E_CORRUPT, "{}: {} bytes; it should be {}, and at most {} are read", file.path(),
         bytes, manifest.index_bytes, kMaxIndex);
  }
  if (hash_of(file) != manifest.index_hash) {
    fail(OTR_E_CORRUPT, "{}: it is not the one that was written: its checksum differs",
         file.path());
  }
  const Reader reader(std::move(file));
  Index index;
  const auto values = read_all<int64_t>(reader, kRowsName, Dtype::i64, kColumns);
  index.rows.resize(values.size() / kColumns);
  std::copy_n(values.data(), values.size(), reinterpret_cast<int64_t*>(index.rows.data()));
  index.checksums = read_all<uint64_t>(reader, kChecksumsName, Dtype::u64, 1);
  Check(manifest, index, reader.path()).run();
  return index;
}

}  // namespace outrigger::checkpoint
