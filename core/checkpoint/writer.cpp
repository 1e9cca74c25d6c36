// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"

namespace outrigger::checkpoint {

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

Writer::Writer(Folder& folder, std::string_view name, Outline outline, const BulkFile::Sizes& sizes)
    : outline_(std::move(outline)),
      file_(folder.create_file(name), outline_.file_bytes, sizes),
      progress_(outline_.entries.size()) {
  file_.write(0, std::as_bytes(std::span(outline_.head)));
}

Writer::~Writer() = default;

void Writer::claim(size_t index, int64_t offset, std::span<const std::byte> data) {
  if (index >= entries().size()) {
    fail(OTR_E_ARGUMENT, "{}: tensor {} of {}", path(), index, entries().size());
  }
  const Entry& entry = entries()[index];
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
  file_.write(outline_.place_of(index) + offset, data);
}

void Writer::require_all() const {
  if (finished_) fail(OTR_E_STATE, "{}: it is finished", path());
  for (size_t i = 0; i < entries().size(); ++i) {
    const int64_t missing = progress_[i].missing();
    if (missing == entries()[i].bytes) continue;
    fail(OTR_E_STATE, "{}: tensor {} is incomplete: byte {} of {} was not written", path(),
         in_quotes(entries()[i].name), missing, entries()[i].bytes);
  }
}

void Writer::require_complete() const {
  const std::lock_guard lock(mutex_);
  require_all();
}

void Writer::finish() {
  const std::lock_guard lock(mutex_);
  require_all();
  finished_ = true;
  file_.finish();
}

}  // namespace outrigger::checkpoint
