// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/scanner.h"
#include "core/checkpoint/table.h"

namespace outrigger::checkpoint {
namespace {

Dtype read_dtype(Scanner& scanner, std::string_view file, std::string_view tensor) {
  const std::string name = scanner.string("the dtype");
  if (const std::optional<Dtype> dtype = dtype_named(name)) return *dtype;
  if (is_packed_dtype(name)) {
    fail(OTR_E_UNSUPPORTED, "{}: tensor {}: dtype {} has elements smaller than a byte; not read",
         file, in_quotes(tensor), name);
  }
  scanner.refuse(format_text("dtype {} is unknown", in_quotes(name)));
}

std::vector<int64_t> read_shape(Scanner& scanner) {
  std::vector<int64_t> shape;
  scanner.list("the shape", [&] {
    if (shape.size() == kMaxExtents) {
      scanner.refuse(format_text("the shape has more than {} extents", kMaxExtents));
    }
    shape.push_back(scanner.whole_number("an extent"));
  });
  return shape;
}

// Sets begin and bytes.
void read_offsets(Scanner& scanner, Entry& entry) {
  int64_t offsets[2] = {};
  size_t count = 0;
  scanner.list("data_offsets", [&] {
    if (count == 2) scanner.refuse("data_offsets has more than 2 numbers");
    offsets[count++] = scanner.whole_number("an offset");
  });
  if (count < 2) scanner.refuse(format_text("data_offsets has {} numbers, not 2", count));
  if (offsets[1] < offsets[0]) {
    scanner.refuse(
        format_text("data_offsets [{}, {}] end before they begin", offsets[0], offsets[1]));
  }
  entry.begin = offsets[0];
  entry.bytes = offsets[1] - offsets[0];
}

Entry read_entry(Scanner& scanner, std::string name, std::string_view file) {
  constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
  Entry entry;
  entry.name = std::move(name);
  scanner.within("tensor " + in_quotes(entry.name));
  bool seen[3] = {};
  scanner.object("a tensor's entry", [&](const std::string& key) {
    size_t field = 0;
    while (field < 3 && kFields[field] != key) ++field;
    if (field == 3) scanner.refuse(format_text("field {} is unknown", in_quotes(key)));
    if (seen[field]) scanner.refuse(format_text("{} stands twice", key));
    seen[field] = true;
    if (field == 0) entry.dtype = read_dtype(scanner, file, entry.name);
    if (field == 1) entry.shape = read_shape(scanner);
    if (field == 2) read_offsets(scanner, entry);
  });
  for (size_t field = 0; field < 3; ++field) {
    if (!seen[field]) scanner.refuse(format_text("{} is missing", kFields[field]));
  }
  scanner.within("");
  return entry;
}

Metadata read_metadata(Scanner& scanner) {
  Metadata metadata;
  scanner.within(std::string(kMetadataKey));
  scanner.object("the metadata", [&](std::string key) {
    if (metadata.contains(key)) {
      scanner.refuse(format_text("key {} stands twice", in_quotes(key)));
    }
    if (metadata.size() == kMaxMetadata) {
      scanner.refuse(format_text("more than {} keys", kMaxMetadata));
    }
    std::string value = scanner.string(format_text("the value of {}", in_quotes(key)));
    metadata.emplace(std::move(key), std::move(value));
  });
  scanner.within("");
  return metadata;
}

}  // namespace

Table parse_table(std::string_view header, int64_t data_bytes, std::string_view file) {
  if (!header.starts_with('{')) {
    fail(OTR_E_CORRUPT, "{}: the header does not begin with '{{'; is it a safetensors file?", file);
  }
  std::vector<Entry> entries;
  Metadata metadata;
  bool has_metadata = false;
  Scanner scanner(header, file);
  scanner.object("the header", [&](std::string key) {
    if (key != kMetadataKey) {
      entries.push_back(read_entry(scanner, std::move(key), file));
      return;
    }
    if (has_metadata) scanner.refuse("__metadata__ stands twice");
    has_metadata = true;
    metadata = read_metadata(scanner);
  });
  scanner.end();
  return {std::move(entries), std::move(metadata), data_bytes, file};
}

}  // namespace outrigger::checkpoint
