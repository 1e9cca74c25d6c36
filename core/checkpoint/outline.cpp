// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a file to be written will be.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"
#include "core/tensor/tensor.h"

namespace outrigger::checkpoint {
namespace {

Entry entry_of(TensorSpec spec) {
  Entry entry{std::move(spec.name), spec.dtype, std::move(spec.shape), 0, 0};
  const bool negative = std::ranges::any_of(entry.shape, [](int64_t extent) { return extent < 0; });
  entry.bytes = negative ? -1 : bytes_of(entry.shape, entry.dtype);
  if (entry.bytes < 0 || entry.shape.size() > kMaxExtents) {
    fail(OTR_E_ARGUMENT, "tensor {}: shape {} cannot be written: at most {} extents, 2^56 elements",
         in_quotes(entry.name), tensor::text_of(entry.shape), kMaxExtents);
  }
  if (entry.name == kMetadataKey || !is_utf8(entry.name)) {
    fail(OTR_E_ARGUMENT, "tensor {}: a name is UTF-8 and not {}", in_quotes(entry.name),
         kMetadataKey);
  }
  return entry;
}

void require_metadata(const Metadata& metadata) {
  if (metadata.size() > kMaxMetadata) {
    fail(OTR_E_ARGUMENT, "{} keys of metadata; at most {} are read", metadata.size(), kMaxMetadata);
  }
  for (const auto& [key, value] : metadata) {
    if (is_utf8(key) && is_utf8(value)) continue;
    fail(OTR_E_ARGUMENT, "metadata {} is not UTF-8", in_quotes(key));
  }
}

void require_different(const std::vector<Entry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  std::ranges::sort(names);
  const auto twin = std::ranges::adjacent_find(names);
  if (twin != names.end()) fail(OTR_E_ARGUMENT, "two tensors are named {}", in_quotes(*twin));
}

std::vector<Entry> entries_of(std::vector<TensorSpec> tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (TensorSpec& spec : tensors) entries.push_back(entry_of(std::move(spec)));
  require_different(entries);
  return entries;
}

}  // namespace

Outline::Outline(std::vector<TensorSpec> tensors, const Metadata& metadata)
    : entries(entries_of(std::move(tensors))) {
  require_metadata(metadata);
  // Larger elements first, so that every tensor is aligned to its own: a reader that maps the file
  // needs that.
  std::vector<Entry*> order;
  order.reserve(entries.size());
  for (Entry& entry : entries) order.push_back(&entry);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const Entry* entry) { return size_of(entry->dtype); });
  int64_t end = 0;
  for (Entry* entry : order) {
    entry->begin = end;
    if (entry->bytes > std::numeric_limits<int64_t>::max() / 2 - end) {
      fail(OTR_E_ARGUMENT, "tensor {} makes the file larger than 2^62 bytes",
           in_quotes(entry->name));
    }
    end += entry->bytes;
  }
  // Empty ones have the place of the next.
  std::vector<const Entry*> listed;
  listed.reserve(entries.size());
  for (const Entry* entry : order) listed.push_back(entry);
  std::ranges::stable_sort(listed, {},
                           [](const Entry* e) { return std::pair(e->begin, e->bytes); });
  const std::string text = header_text(listed, metadata);
  if (static_cast<int64_t>(text.size()) > kMaxHeader) {
    fail(OTR_E_ARGUMENT, "a header would have {} bytes; no reader takes more than {}", text.size(),
         kMaxHeader);
  }
  const uint64_t length = text.size();
  head.append(reinterpret_cast<const char*>(&length), sizeof length);
  head += text;
  file_bytes = data_begin() + end;
}

}  // namespace outrigger::checkpoint
