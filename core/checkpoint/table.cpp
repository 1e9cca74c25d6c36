// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/table.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/tensor.h"

namespace outrigger::checkpoint {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 56;

std::string range_of(const Entry& entry) {
  return format_text("[{}, {}]", entry.begin, entry.begin + entry.bytes);
}

void require_size(const Entry& entry, std::string_view file) {
  const int64_t bytes = bytes_of(entry.shape, entry.dtype);
  if (bytes == entry.bytes) return;
  const std::string shape = tensor::text_of(entry.shape);
  if (bytes < 0) {
    fail(OTR_E_CORRUPT, "{}: tensor {}: shape {} has more than 2^56 elements", file,
         in_quotes(entry.name), shape);
  }
  fail(OTR_E_CORRUPT, "{}: tensor {}: shape {} of {} is {} bytes, and data_offsets {} are {}", file,
       in_quotes(entry.name), shape, name_of(entry.dtype), bytes, range_of(entry), entry.bytes);
}

// Sorted entries follow each other from 0 to data_bytes.
void require_cover(const std::vector<Entry>& entries, int64_t data_bytes, std::string_view file) {
  int64_t end = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.begin > end) {
      fail(OTR_E_CORRUPT,
           "{}: tensor {}: data_offsets {} leave a hole: bytes {} to {} are nobody's", file,
           in_quotes(entry.name), range_of(entry), end, entry.begin);
    }
    if (entry.begin < end) {
      fail(OTR_E_CORRUPT, "{}: tensor {}: data_offsets {} overlap those of tensor {}, {}", file,
           in_quotes(entry.name), range_of(entry), in_quotes(entries[i - 1].name),
           range_of(entries[i - 1]));
    }
    end += entry.bytes;
  }
  if (end == data_bytes) return;
  fail(OTR_E_CORRUPT, "{}: the header tells of {} bytes of data, and the file has {}: {}", file,
       end, data_bytes, data_bytes < end ? "it was cut short" : "trailing bytes");
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += format_text("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_entry(std::string& out, const Entry& entry) {
  append_string(out, entry.name);
  out += R"(:{"dtype":")";
  out += name_of(entry.dtype);
  out += R"(","shape":[)";
  for (size_t i = 0; i < entry.shape.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(entry.shape[i]);
  }
  out += R"(],"data_offsets":[)" + std::to_string(entry.begin) + ',' +
         std::to_string(entry.begin + entry.bytes) + "]}";
}

}  // namespace

std::string in_quotes(std::string_view name) { return format_text("'{}'", printable(name, 80)); }

int64_t bytes_of(const std::vector<int64_t>& shape, Dtype dtype) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    empty = empty || extent == 0;
    if (extent > 0 && count > kMaxElements / extent) return -1;
    count *= std::max<int64_t>(extent, 1);
  }
  return empty ? 0 : count * size_of(dtype);
}

Table::Table(std::vector<Entry> entries, Metadata metadata, int64_t data_bytes,
             std::string_view file)
    : entries_(std::move(entries)), metadata_(std::move(metadata)), by_name_(entries_.size()) {
  for (const Entry& entry : entries_) require_size(entry, file);
  // An empty tensor stands before the one that begins where it does.
  std::ranges::stable_sort(entries_, {},
                           [](const Entry& e) { return std::tuple(e.begin, e.bytes); });
  require_cover(entries_, data_bytes, file);
  const auto name = [&](uint32_t i) -> const std::string& { return entries_[i].name; };
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::ranges::sort(by_name_, {}, name);
  const auto twin = std::ranges::adjacent_find(by_name_, {}, name);
  if (twin != by_name_.end()) {
    fail(OTR_E_CORRUPT, "{}: tensor {} stands twice in the header", file, in_quotes(name(*twin)));
  }
}

const Entry* Table::find(std::string_view name) const {
  const auto name_at = [&](uint32_t i) -> std::string_view { return entries_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_at);
  return found == by_name_.end() || name_at(*found) != name ? nullptr : &entries_[*found];
}

std::string header_text(const std::vector<const Entry*>& entries, const Metadata& metadata) {
  std::string out = "{";
  const auto begin_member = [&] { out += out.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    append_string(out, kMetadataKey);
    out += ":{";
    for (auto pair = metadata.begin(); pair != metadata.end(); ++pair) {
      if (pair != metadata.begin()) out += ',';
      append_string(out, pair->first);
      out += ':';
      append_string(out, pair->second);
    }
    out += '}';
  }
  for (const Entry* entry : entries) {
    begin_member();
    append_entry(out, *entry);
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

}  // namespace outrigger::checkpoint
