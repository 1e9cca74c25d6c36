// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"

namespace outrigger::checkpoint {

static_assert(std::endian::native == std::endian::little);

Reader::Reader(File file)
    : file_(std::move(file)), file_bytes_(file_.size()), table_(read_table(file_bytes_)) {}

Table Reader::read_table(int64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    fail(OTR_E_CORRUPT, "{}: {} bytes are no safetensors file; its length alone takes {}", path(),
         file_bytes, kLengthBytes);
  }
  uint64_t length = 0;
  file_.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  // Before anything of that size is asked for.
  const auto rest = static_cast<uint64_t>(file_bytes - kLengthBytes);
  if (length > static_cast<uint64_t>(kMaxHeader) || length > rest) {
    fail(OTR_E_CORRUPT, "{}: a header of {} bytes; at most {} are read, and the file has {} more",
         path(), length, kMaxHeader, rest);
  }
  std::string header(length, '\0');
  file_.read_at(kLengthBytes, std::as_writable_bytes(std::span(header)));
  data_begin_ = kLengthBytes + static_cast<int64_t>(length);
  return parse_table(header, file_bytes - data_begin_, path());
}

const Entry& Reader::at(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) {
    fail(OTR_E_NOT_FOUND, "{}: there is no tensor {} among its {}", path(), in_quotes(name),
         entries().size());
  }
  return *entry;
}

void Reader::read(const Entry& entry, int64_t offset, std::span<std::byte> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (offset < 0 || count > entry.bytes || offset > entry.bytes - count) {
    fail(OTR_E_ARGUMENT, "{}: tensor {} has {} bytes; {} from byte {} on are not among them",
         path(), in_quotes(entry.name), entry.bytes, count, offset);
  }
  file_.read_at(data_begin_ + entry.begin + offset, out);
}

}  // namespace outrigger::checkpoint
