// SPDX-License-Identifier: Apache-2.0
#include "core/engine/rank_file.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/checkpoint/bulk_file.h"
#include "core/checkpoint/checksums.h"

namespace outrigger::engine {

using checkpoint::BulkFile;
using checkpoint::Hasher;
using memory::Purpose;

namespace {

checkpoint::Metadata metadata_of(const checkpoint::Manifest& manifest, int64_t rank) {
  return {{"checkpoint", manifest.id}, {"rank", std::to_string(rank)}};
}

// Takes tensors' bytes in the order in which they come, one tensor's from front to back.
class Sums {
 public:
  Sums(const std::vector<checkpoint::IndexRow>& rows, const std::vector<checkpoint::Entry>& entries)
      : rows_(rows), entries_(entries), sums_(rows.size()), hashers_(rows.size()) {}

  void add(size_t tensor, int64_t end, std::span<const std::byte> bytes) {
    std::optional<Hasher>& hasher = hashers_[tensor];
    if (!hasher) hasher.emplace();
    hasher->add(bytes);
    if (end < entries_[tensor].bytes) return;
    sums_[tensor] = hasher->take();
    hasher.reset();
  }
  [[nodiscard]] RankFile file(int64_t bytes) const {
    RankFile file{rows_, {}, bytes};
    for (size_t i = 0; i < file.rows.size(); ++i) {
      file.rows[i].checksum = static_cast<int64_t>(file.checksums.size());
      file.checksums.insert(file.checksums.end(), sums_[i].begin(), sums_[i].end());
    }
    return file;
  }

 private:
  const std::vector<checkpoint::IndexRow>& rows_;
  const std::vector<checkpoint::Entry>& entries_;
  std::vector<std::vector<uint64_t>> sums_;
  std::vector<std::optional<Hasher>> hashers_;  // of tensors that have begun
};

std::byte* page_in(std::byte* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return memory + (BulkFile::kPage - address % BulkFile::kPage) % BulkFile::kPage;
}

}  // namespace

RankFile write_file(checkpoint::Folder& folder, const Contents& contents,
                    const checkpoint::Manifest& manifest, int64_t rank, memory::Ledger& ledger,
                    const Tick& tick) {
  checkpoint::Writer writer(folder, checkpoint::rank_file(rank), contents.tensors(),
                            metadata_of(manifest, rank));
  const memory::Charge on_the_way(ledger, Purpose::acquired,
                                  BulkFile::room_of(writer.file_bytes()));
  Sums sums(contents.rows(), writer.entries());
  int64_t written = 0;
  contents.each([&](size_t tensor, int64_t offset, std::span<const std::byte> bytes) {
    const auto count = static_cast<int64_t>(bytes.size());
    sums.add(tensor, offset + count, bytes);
    writer.write(tensor, offset, bytes);
    tick(written += count);
  });
  writer.finish();
  return sums.file(writer.file_bytes());
}

int64_t Snapshot::room_for(int64_t states) {
  constexpr int64_t kOfTheHost = int64_t{256} << 10;  // the file's header, too
  return states + kOfTheHost + BulkFile::kPage;
}

Snapshot::Snapshot(const Contents& contents, const checkpoint::Manifest& manifest, int64_t rank,
                   memory::Ledger& ledger, memory::Block& room)
    : rank_(rank),
      outline_(contents.tensors(), metadata_of(manifest, rank)),
      rows_(contents.rows()) {
  const int64_t needed = outline_.file_bytes + BulkFile::kPage;
  if (room.bytes() < needed) {
    room = {};
    room = memory::Block(ledger, Purpose::snapshots, needed);
  }
  image_ = page_in(room.data());
  std::ranges::copy(std::as_bytes(std::span(outline_.head)), image_);
  contents.each([&](size_t tensor, int64_t offset, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, image_ + outline_.place_of(tensor) + offset);
  });
}

RankFile Snapshot::write(checkpoint::Folder& folder, const Tick& tick) const {
  constexpr BulkFile::Sizes kSizes;
  BulkFile file(folder.create_file(checkpoint::rank_file(rank_)), outline_.file_bytes, kSizes);
  std::vector<size_t> order(rows_.size());  // of the tensors in the file
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return outline_.entries[i].begin; });
  Sums sums(rows_, outline_.entries);
  auto next = order.begin();
  int64_t hashed = 0;  // of that tensor
  for (int64_t at = 0; at < outline_.file_bytes; at += kSizes.chunk) {
    const int64_t end = std::min(at + kSizes.chunk, outline_.file_bytes);
    file.write_pages(at, {image_ + at, static_cast<size_t>(end - at)});
    // Beside the disk.
    while (next != order.end()) {
      const int64_t bytes = outline_.entries[*next].bytes, place = outline_.place_of(*next);
      const int64_t count = std::min(bytes - hashed, end - (place + hashed));
      if (count < 0 || (count == 0 && bytes > hashed)) break;
      sums.add(*next, hashed + count, {image_ + place + hashed, static_cast<size_t>(count)});
      hashed += count;
      if (hashed < bytes) break;
      hashed = 0;
      ++next;
    }
    tick(end);
  }
  file.finish();
  return sums.file(outline_.file_bytes);
}

}  // namespace outrigger::engine
