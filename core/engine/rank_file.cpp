// SPDX-License-Identifier: Apache-2.0
#include "core/engine/rank_file.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/checkpoint/bulk_file.h"
#include "core/checkpoint/checksums.h"
#include "core/memory/copy.h"

namespace outrigger::engine {

using checkpoint::BulkFile;
using checkpoint::TensorBlock;
using memory::Purpose;

namespace {

// Of the tensors' blocks, in any order and from any thread.
class Sums {
 public:
  Sums(std::vector<checkpoint::IndexRow> rows, const checkpoint::Outline& outline)
      : file_{std::move(rows), {}, outline.file_bytes} {
    int64_t sums = 0;
    for (size_t i = 0; i < file_.rows.size(); ++i) {
      file_.rows[i].checksum = sums;
      sums += checkpoint::blocks_of(outline.entries[i].bytes);
    }
    file_.checksums.resize(static_cast<size_t>(sums));
  }
  void add(const TensorBlock& block, std::span<const std::byte> bytes) {
    const int64_t first = file_.rows[block.tensor].checksum;
    file_.checksums[static_cast<size_t>(first + block.offset / checkpoint::kBlock)] =
        checkpoint::checksum_of(bytes);
  }
  [[nodiscard]] RankFile take() { return std::move(file_); }

 private:
  RankFile file_;
};

std::byte* page_in(std::byte* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return memory + (BulkFile::kPage - address % BulkFile::kPage) % BulkFile::kPage;
}

}  // namespace

RankFile write_file(checkpoint::Folder& folder, const Contents& contents, int64_t rank,
                    memory::Ledger& ledger, const Tick& tick) {
  checkpoint::Writer writer(folder, checkpoint::rank_file(rank), contents.outline());
  const memory::Charge on_the_way(ledger, Purpose::acquired,
                                  BulkFile::room_of(writer.file_bytes()));
  Sums sums(contents.rows(), contents.outline());
  std::atomic<int64_t> written{0};
  contents.each(
      [&](const TensorBlock& block, std::span<const std::byte> bytes) {
        sums.add(block, bytes);
        writer.write(block.tensor, block.offset, bytes);
        written += block.bytes;
      },
      [&] { tick(written); });
  writer.finish();
  return sums.take();
}

int64_t Snapshot::room_for(int64_t states) {
  constexpr int64_t kOfTheHost = int64_t{256} << 10;  // the file's header, too
  return states + kOfTheHost + BulkFile::kPage;
}

Snapshot::Snapshot(const Contents& contents, int64_t rank, memory::Ledger& ledger,
                   memory::Block& room)
    : rank_(rank), outline_(contents.outline()), rows_(contents.rows()) {
  const int64_t needed = outline_.file_bytes + BulkFile::kPage;
  if (room.bytes() < needed) {
    room = {};
    room = memory::Block(ledger, Purpose::snapshots, needed);
  }
  image_ = page_in(room.data());
  std::ranges::copy(std::as_bytes(std::span(outline_.head)), image_);
  contents.each(
      [&](const TensorBlock& block, std::span<const std::byte> bytes) {
        memory::copy_past_caches(image_ + outline_.place_of(block.tensor) + block.offset, bytes);
      },
      [] {});
}

RankFile Snapshot::write(checkpoint::Folder& folder, const Tick& tick) const {
  constexpr BulkFile::Sizes kSizes;
  BulkFile file(folder.create_file(checkpoint::rank_file(rank_)), outline_.file_bytes, kSizes);
  Sums sums(rows_, outline_);
  const std::vector<TensorBlock> blocks = checkpoint::blocks_of(outline_);
  auto next = blocks.begin();
  for (int64_t at = 0; at < outline_.file_bytes; at += kSizes.chunk) {
    const int64_t end = std::min(at + kSizes.chunk, outline_.file_bytes);
    file.write_pages(at, {image_ + at, static_cast<size_t>(end - at)});
    // Beside the disk.
    for (; next != blocks.end(); ++next) {
      const int64_t place = outline_.place_of(next->tensor) + next->offset;
      if (place + next->bytes > end) break;
      sums.add(*next, {image_ + place, static_cast<size_t>(next->bytes)});
    }
    tick(end);
  }
  file.finish();
  return sums.take();
}

}  // namespace outrigger::engine
