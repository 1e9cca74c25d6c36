// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: what is where in it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/dtype.h"

namespace outrigger::checkpoint {

struct Entry {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0;  // begin: from the end of the header on
  bool operator==(const Entry&) const = default;
};

using Metadata = std::map<std::string, std::string>;

// The official reader's cap, too.
inline constexpr int64_t kMaxHeader = 100'000'000;
inline constexpr int64_t kLengthBytes = 8;
// Caps of our own, so that a header cannot ask for many times its own memory.
inline constexpr size_t kMaxExtents = 64, kMaxMetadata = 65536;
inline constexpr std::string_view kMetadataKey = "__metadata__";

class Table {
 public:
  // Sorts the entries by where they are; `file` is for messages. Throws OTR_E_CORRUPT unless the
  // names differ, each entry's bytes are shape × dtype, and together they are the `data_bytes` of
  // the file without overlap or hole.
  Table(std::vector<Entry> entries, Metadata metadata, int64_t data_bytes, std::string_view file);

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  [[nodiscard]] const Entry* find(std::string_view name) const;  // null: none

 private:
  std::vector<Entry> entries_;
  Metadata metadata_;
  std::vector<uint32_t> by_name_;  // an index is a tenth of a map's size
};

[[nodiscard]] std::string in_quotes(std::string_view name);  // for messages

// Bytes of shape × dtype; −1 where the extents that are not 0 multiply to more than 2^56 elements.
[[nodiscard]] int64_t bytes_of(const std::vector<int64_t>& shape, Dtype dtype);

// Strict: each key once, nothing unknown. Throws OTR_E_CORRUPT, or OTR_E_UNSUPPORTED for a dtype
// that the format has and we do not.
[[nodiscard]] Table parse_table(std::string_view header, int64_t data_bytes, std::string_view file);

// The header's text for entries in this order, with spaces up to a multiple of 8.
[[nodiscard]] std::string header_text(const std::vector<const Entry*>& entries,
                                      const Metadata& metadata);

}  // namespace outrigger::checkpoint
