// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

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

// What came of one tensor.
struct Writer::Progress {
  std::map<int64_t, int64_t> written;  // ranges that do not touch: begin → end

  // False: some of [begin, end) came before.
  bool add(int64_t begin, int64_t end);
  // The first byte that did not come.
  [[nodiscard]] int64_t missing() const {
    return written.empty() || written.begin()->first > 0 ? 0 : written.begin()->second;
  }
};

bool Writer::Progress::add(int64_t begin, int64_t end) {
  auto after = written.lower_bound(begin);
  if (after != written.end() && after->first < end) return false;
  const auto before = after == written.begin() ? written.end() : std::prev(after);
  if (before != written.end() && before->second > begin) return false;
  if (after != written.end() && after->first == end) {
    end = after->second;
    written.erase(after);
  }
  if (before != written.end() && before->second == begin) {
    before->second = end;
  } else {
    written.emplace(begin, end);
  }
  return true;
}

Writer::Writer(Folder& folder, std::string_view name, std::vector<TensorSpec> tensors,
               Metadata metadata)
    : metadata_(std::move(metadata)),
      entries_(entries_of(std::move(tensors))),
      file_((lay_out(), folder.create_file(name))),
      progress_(entries_.size()) {
  write_header();
}

Writer::~Writer() = default;

// Larger elements first, so that every tensor is aligned to its own: a reader that maps the file
// needs that.
void Writer::lay_out() {
  require_metadata(metadata_);
  std::vector<Entry*> order;
  order.reserve(entries_.size());
  for (Entry& entry : entries_) order.push_back(&entry);
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
  file_bytes_ = end;
}

void Writer::write_header() {
  std::vector<const Entry*> order;
  order.reserve(entries_.size());
  for (const Entry& entry : entries_) order.push_back(&entry);
  std::ranges::stable_sort(order, {}, [](const Entry* e) { return std::pair(e->begin, e->bytes); });
  const std::string text = header_text(order, metadata_);
  if (static_cast<int64_t>(text.size()) > kMaxHeader) {
    fail(OTR_E_ARGUMENT, "{}: its header would have {} bytes; no reader takes more than {}", path(),
         text.size(), kMaxHeader);
  }
  const uint64_t length = text.size();
  file_.write_at(0, std::as_bytes(std::span(&length, 1)));
  file_.write_at(kLengthBytes, std::as_bytes(std::span(text)));
  data_begin_ = kLengthBytes + static_cast<int64_t>(length);
  file_bytes_ += data_begin_;
}

void Writer::claim(size_t index, int64_t offset, std::span<const std::byte> data) {
  if (index >= entries_.size()) {
    fail(OTR_E_ARGUMENT, "{}: tensor {} of {}", path(), index, entries_.size());
  }
  const Entry& entry = entries_[index];
  const auto count = static_cast<int64_t>(data.size());
  if (offset < 0 || count > entry.bytes || offset > entry.bytes - count) {
    fail(OTR_E_ARGUMENT, "{}: tensor {} has {} bytes; {} from byte {} on are not among them",
         path(), in_quotes(entry.name), entry.bytes, count, offset);
  }
  const std::lock_guard lock(mutex_);
  if (finished_) fail(OTR_E_STATE, "{}: it is finished", path());
  if (count == 0) return;
  if (!progress_[index].add(offset, offset + count)) {
    fail(OTR_E_STATE, "{}: tensor {}: some of bytes {} to {} were written before", path(),
         in_quotes(entry.name), offset, offset + count);
  }
}

void Writer::write(size_t index, int64_t offset, std::span<const std::byte> data) {
  claim(index, offset, data);
  file_.write_at(data_begin_ + entries_[index].begin + offset, data);
}

void Writer::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) fail(OTR_E_STATE, "{}: it is finished", path());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t missing = progress_[i].missing();
    if (missing == entries_[i].bytes) continue;
    fail(OTR_E_STATE, "{}: tensor {} is incomplete: byte {} of {} was not written", path(),
         in_quotes(entries_[i].name), missing, entries_[i].bytes);
  }
  finished_ = true;
  file_.sync();
  file_.close();
}

}  // namespace outrigger::checkpoint
