// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/source.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/damage.h"
#include "core/checkpoint/planes.h"

namespace outrigger::checkpoint {
namespace {

constexpr size_t kOpen = 32;  // files at a time, where the process may have as many
constexpr std::string_view kPartPrefix = "host/";

}  // namespace

Source::Source(Folder folder, const Manifest& manifest)
    : folder_(std::move(folder)),
      manifest_(&manifest),
      index_(read_index(folder_, manifest)),
      ranks_(manifest.file_bytes.size()) {
  for (const IndexRow& row : index_.rows) {
    Rank& rank = ranks_[static_cast<size_t>(row.rank)];
    ++rank.tensors;
    if (row.parameter >= 0) {
      runs_[{row.parameter, row.kept, row.plane}].push_back(&row);
    } else {
      rank.parts.emplace(row.first, &row);
    }
  }
  for (auto& [key, runs] : runs_)
    std::ranges::sort(runs, {}, [](const IndexRow* r) { return r->first; });
}

bool Source::has(int64_t parameter, Kept kept) const {
  return runs_.contains({parameter, static_cast<int64_t>(kept), 0});
}

std::shared_ptr<const Reader> Source::reader_of(int64_t rank) {
  if (rank < 0 || rank >= static_cast<int64_t>(ranks_.size())) {
    fail(OTR_E_NOT_FOUND, "{}: it was saved by ranks 0 to {}, not by {}", folder_.path(),
         ranks_.size() - 1, rank);
  }
  const std::lock_guard lock(mutex_);
  if (const auto found = readers_.find(rank); found != readers_.end()) return found->second;
  auto reader = open(rank);
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
  if (const size_t named = ranks_[static_cast<size_t>(rank)].tensors;
      reader->entries().size() != named) {
    fail(OTR_E_CORRUPT, "{}: it has {} tensors, and the index names {}", reader->path(),
         reader->entries().size(), named);
  }
  if (readers_.size() >= kOpen) readers_.clear();  // those in use stay
  readers_.emplace(rank, reader);
  return reader;
}

// A file that is opened again is checked again, and so is every value that is read: it need not be
// the same file.
std::shared_ptr<const Reader> Source::open(int64_t rank) {
  try {
    return std::make_shared<const Reader>(folder_, rank_file(rank));
  } catch (const Error& error) {
    // The limit of open files is the process's, in which there may be many ranks.
    if (error.status() != OTR_E_OUT_OF_MEMORY || readers_.empty()) throw;
  }
  readers_.clear();
  return std::make_shared<const Reader>(folder_, rank_file(rank));
}

CheckedTensor Source::tensor_of(const IndexRow& row, const Reader& reader, const std::string& name,
                                Dtype dtype, int64_t bytes) const {
  const Entry* const entry = reader.find(name);
  if (entry == nullptr || entry->bytes != bytes || entry->dtype != dtype) {
    fail(OTR_E_CORRUPT, "{}: tensor {} of {} bytes of {} is not there, and the index names it",
         reader.path(), in_quotes(name), bytes, checkpoint::name_of(dtype));
  }
  return {reader, *entry,
          std::span(index_.checksums)
              .subspan(static_cast<size_t>(row.checksum), static_cast<size_t>(blocks_of(bytes)))};
}

const Plane& Source::plane_of(int64_t kept, int64_t plane) const {
  return planes_of(*manifest_->formats.at(static_cast<size_t>(kept)))[static_cast<size_t>(plane)];
}

std::string Source::name_of(const IndexRow& row) const {
  const Manifest::Parameter& p = manifest_->parameters[static_cast<size_t>(row.parameter)];
  return tensor_name(p, static_cast<Kept>(row.kept), plane_of(row.kept, row.plane).suffix,
                     row.first, row.count);
}

void Source::move_to(Cursor& cursor, const IndexRow& row) {
  if (cursor.row == &row) return;
  const Plane& plane = plane_of(row.kept, row.plane);
  cursor.row = nullptr;
  cursor.reader = reader_of(row.rank);
  cursor.tensor = tensor_of(row, *cursor.reader, name_of(row), plane.dtype, plane.bytes(row.count));
  cursor.row = &row;
}

void Source::read(Cursors& cursors, int64_t parameter, Kept kept, size_t plane, int64_t first,
                  int64_t count, std::vector<std::byte>& out) {
  const std::vector<const IndexRow*>& runs =
      runs_.at({parameter, static_cast<int64_t>(kept), static_cast<int64_t>(plane)});
  const Plane& p = planes_of(*manifest_->formats.at(static_cast<size_t>(kept)))[plane];
  out.resize(static_cast<size_t>(p.bytes(count)));
  const int64_t end = first + count;
  auto run = std::ranges::upper_bound(runs, first, {}, [](const IndexRow* r) { return r->first; });
  for (--run; run != runs.end() && (*run)->first < end; ++run) {
    const IndexRow& row = **run;
    const int64_t from = std::max(first, row.first), to = std::min(end, row.first + row.count);
    Cursor& cursor = cursors.at(plane);
    move_to(cursor, row);
    const auto place = static_cast<size_t>(p.bytes(from - first));
    cursor.tensor->read(p.bytes(from - row.first),
                        std::span(out).subspan(place, static_cast<size_t>(p.bytes(to - from))));
  }
}

void Source::verify_state(const IndexRow& row, Cursors& cursors, std::vector<std::byte>& bytes) {
  constexpr int64_t kAtATime = 16 * kBlock;
  Cursor& cursor = cursors.at(static_cast<size_t>(row.plane));
  move_to(cursor, row);
  const int64_t all = plane_of(row.kept, row.plane).bytes(row.count);
  for (int64_t at = 0; at < all; at += kAtATime) {
    bytes.resize(static_cast<size_t>(std::min(kAtATime, all - at)));
    cursor.tensor->read(at, bytes);
  }
}

void Source::verify() {
  Damage damage;
  std::vector<bool> opens(ranks_.size());  // of files that do not, the tensors are not listed
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto number = static_cast<int64_t>(rank);
    opens[rank] = damage.look(rank_file(number), [&] { static_cast<void>(reader_of(number)); });
  }
  Cursors cursors;
  std::vector<std::byte> bytes;
  for (const auto& [key, runs] : runs_) {
    for (const IndexRow* row : runs) {
      if (!opens[static_cast<size_t>(row->rank)]) continue;
      damage.look(tensor_in(rank_file(row->rank), name_of(*row)),
                  [&] { verify_state(*row, cursors, bytes); });
    }
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!opens[rank]) continue;
    const auto number = static_cast<int64_t>(rank);
    std::vector<std::string> names;
    damage.look(rank_file(number), [&] { names = part_names(number); });
    for (const std::string& name : names) {
      damage.look(tensor_in(rank_file(number), part_name(name)),
                  [&] { static_cast<void>(part(name, number)); });
    }
  }
  damage.require_none();
}

// A parameter may have such a name, too.
std::vector<std::string> Source::part_names(int64_t rank) {
  const std::shared_ptr<const Reader> reader = reader_of(rank);
  const auto& parts = ranks_[static_cast<size_t>(rank)].parts;
  std::vector<std::string> names;
  for (const Entry& entry : reader->entries()) {
    if (!entry.name.starts_with(kPartPrefix)) continue;
    std::string name = entry.name.substr(kPartPrefix.size());
    if (parts.contains(part_hash(name))) names.push_back(std::move(name));
  }
  if (names.size() == parts.size()) return names;
  fail(OTR_E_CORRUPT, "{}: it has {} parts of the host that the index names, of {}", reader->path(),
       names.size(), parts.size());
}

std::vector<std::byte> Source::part(const std::string& name, int64_t rank) {
  const std::shared_ptr<const Reader> reader = reader_of(rank);
  const auto& parts = ranks_[static_cast<size_t>(rank)].parts;
  const auto found = parts.find(part_hash(name));
  if (found == parts.end()) {
    fail(OTR_E_NOT_FOUND, "{}: rank {} gave no \"{}\"", folder_.path(), rank, printable(name));
  }
  const IndexRow& row = *found->second;
  CheckedTensor tensor = tensor_of(row, *reader, part_name(name), Dtype::u8, row.count);
  std::vector<std::byte> bytes(static_cast<size_t>(row.count));
  tensor.read(0, bytes);
  return bytes;
}

}  // namespace outrigger::checkpoint
