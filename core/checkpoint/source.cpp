// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/source.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/planes.h"

namespace outrigger::checkpoint {
namespace {

constexpr size_t kOpen = 32;  // files at a time

}  // namespace

Source::Source(Folder folder, const Manifest& manifest)
    : folder_(std::move(folder)), manifest_(&manifest), index_(read_index(folder_, manifest)) {
  for (const IndexRow& row : index_.rows) {
    if (row.parameter >= 0) runs_[{row.parameter, row.kept, row.plane}].push_back(&row);
  }
  for (auto& [key, runs] : runs_)
    std::ranges::sort(runs, {}, [](const IndexRow* r) { return r->first; });
}

bool Source::has(int64_t parameter, Kept kept) const {
  return runs_.contains({parameter, static_cast<int64_t>(kept), 0});
}

std::shared_ptr<const Reader> Source::reader_of(int64_t rank) {
  if (rank < 0 || rank >= static_cast<int64_t>(manifest_->file_bytes.size())) {
    fail(OTR_E_NOT_FOUND, "{}: it was saved by ranks 0 to {}, not by {}", folder_.path(),
         manifest_->file_bytes.size() - 1, rank);
  }
  if (const auto found = readers_.find(rank); found != readers_.end()) return found->second;
  auto reader = std::make_shared<const Reader>(folder_, rank_file(rank));
  const auto is = [&](const char* key, const std::string& value) {
    const auto found = reader->metadata().find(key);
    return found != reader->metadata().end() && found->second == value;
  };
  if (!is("checkpoint", manifest_->id) || !is("rank", std::to_string(rank))) {
    fail(OTR_E_CORRUPT, "{}: it is a file of another checkpoint or rank", reader->path());
  }
  if (const int64_t expected = manifest_->file_bytes.at(static_cast<size_t>(rank));
      reader->file_bytes() != expected) {
    fail(OTR_E_CORRUPT, "{}: {} bytes; the manifest says {}", reader->path(), reader->file_bytes(),
         expected);
  }
  if (readers_.size() >= kOpen) readers_.clear();  // those in use stay
  readers_.emplace(rank, reader);
  return reader;
}

CheckedTensor Source::tensor_of(const IndexRow& row, const Reader& reader, const std::string& name,
                                int64_t bytes) const {
  const Entry* const entry = reader.find(name);
  if (entry == nullptr || entry->bytes != bytes) {
    fail(OTR_E_CORRUPT, "{}: tensor {} of {} bytes is not there, and the index names it",
         reader.path(), in_quotes(name), bytes);
  }
  return {reader, *entry,
          std::span(index_.checksums)
              .subspan(static_cast<size_t>(row.checksum), static_cast<size_t>(blocks_of(bytes)))};
}

void Source::move_to(Cursor& cursor, const IndexRow& row) {
  if (cursor.row == &row) return;
  const Manifest::Parameter& p = manifest_->parameters[static_cast<size_t>(row.parameter)];
  const auto kept = static_cast<Kept>(row.kept);
  const Plane& plane = planes_of(
      *manifest_->formats.at(static_cast<size_t>(row.kept)))[static_cast<size_t>(row.plane)];
  cursor.row = nullptr;
  cursor.reader = reader_of(row.rank);
  cursor.tensor =
      tensor_of(row, *cursor.reader, tensor_name(p, kept, plane.suffix, row.first, row.count),
                plane.bytes(row.count));
  cursor.row = &row;
}

void Source::read(int64_t parameter, Kept kept, size_t plane, int64_t first, int64_t count,
                  std::vector<std::byte>& out) {
  const std::vector<const IndexRow*>& runs =
      runs_.at({parameter, static_cast<int64_t>(kept), static_cast<int64_t>(plane)});
  const Plane& p = planes_of(*manifest_->formats.at(static_cast<size_t>(kept)))[plane];
  out.resize(static_cast<size_t>(p.bytes(count)));
  const int64_t end = first + count;
  auto run = std::ranges::upper_bound(runs, first, {}, [](const IndexRow* r) { return r->first; });
  for (--run; run != runs.end() && (*run)->first < end; ++run) {
    const IndexRow& row = **run;
    const int64_t from = std::max(first, row.first), to = std::min(end, row.first + row.count);
    Cursor& cursor = cursors_.at(plane);
    move_to(cursor, row);
    const auto place = static_cast<size_t>(p.bytes(from - first));
    cursor.tensor->read(p.bytes(from - row.first),
                        std::span(out).subspan(place, static_cast<size_t>(p.bytes(to - from))));
  }
}

void Source::verify() {
  constexpr int64_t kAtATime = 16 * kBlock;
  std::vector<std::byte> bytes;
  for (const auto& [key, runs] : runs_) {
    const Plane& plane = planes_of(
        *manifest_->formats.at(static_cast<size_t>(key.kept)))[static_cast<size_t>(key.plane)];
    Cursor& cursor = cursors_.at(static_cast<size_t>(key.plane));
    for (const IndexRow* row : runs) {
      move_to(cursor, *row);
      const int64_t all = plane.bytes(row->count);
      for (int64_t at = 0; at < all; at += kAtATime) {
        bytes.resize(static_cast<size_t>(std::min(kAtATime, all - at)));
        cursor.tensor->read(at, bytes);
      }
    }
  }
  for (int64_t rank = 0; rank < static_cast<int64_t>(manifest_->file_bytes.size()); ++rank) {
    for (const std::string& name : part_names(rank)) static_cast<void>(part(name, rank));
  }
}

std::vector<std::string> Source::part_names(int64_t rank) {
  constexpr std::string_view kPrefix = "host/";
  std::vector<std::string> names;
  for (const Entry& entry : reader_of(rank)->entries()) {
    if (entry.name.starts_with(kPrefix)) names.push_back(entry.name.substr(kPrefix.size()));
  }
  return names;
}

std::vector<std::byte> Source::part(const std::string& name, int64_t rank) {
  const std::shared_ptr<const Reader> reader = reader_of(rank);
  const int64_t hash = part_hash(name);
  for (const IndexRow& row : index_.rows) {
    if (row.rank != rank || row.parameter != -1 || row.first != hash) continue;
    CheckedTensor tensor = tensor_of(row, *reader, part_name(name), row.count);
    std::vector<std::byte> bytes(static_cast<size_t>(row.count));
    tensor.read(0, bytes);
    return bytes;
  }
  fail(OTR_E_NOT_FOUND, "{}: rank {} gave no \"{}\"", folder_.path(), rank, printable(name));
}

}  // namespace outrigger::checkpoint
