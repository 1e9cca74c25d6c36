// SPDX-License-Identifier: Apache-2.0
#include "core/engine/rank_file.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/checkpoint/bulk_file.h"
#include "core/checkpoint/checksums.h"

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

// The file of a rank, while its blocks come.
class Making {
 public:
  Making(checkpoint::Folder& folder, const Contents& contents, int64_t rank, memory::Ledger& ledger)
      : contents_(contents),
        writer_(folder, checkpoint::rank_file(rank), contents.outline()),
        on_the_way_(ledger, Purpose::acquired, BulkFile::room_of(writer_.file_bytes())),
        sums_(contents.rows(), contents.outline()) {}

  void add(size_t number, std::span<const std::byte> bytes) {
    const TensorBlock& block = contents_.blocks()[number];
    sums_.add(block, bytes);
    writer_.write(block.tensor, block.offset, bytes);
    written_ += block.bytes;
  }
  [[nodiscard]] int64_t written() const { return written_; }
  [[nodiscard]] RankFile finish() {
    writer_.finish();
    return sums_.take();
  }

 private:
  const Contents& contents_;
  checkpoint::Writer writer_;
  const memory::Charge on_the_way_;
  Sums sums_;
  std::atomic<int64_t> written_{contents_.outline().data_begin()};
};

}  // namespace

RankFile write_file(checkpoint::Folder& folder, const Contents& contents, int64_t rank,
                    memory::Ledger& ledger, const Tick& tick) {
  Making file(folder, contents, rank, ledger);
  contents.each(
      [&](size_t block, Contents::Scratch& scratch) {
        contents.read(block, scratch,
                      [&](std::span<const std::byte> bytes) { file.add(block, bytes); });
      },
      [&] { tick(file.written()); });
  return file.finish();
}

RankFile write_file(checkpoint::Folder& folder, Snapshot& snapshot, int64_t rank,
                    memory::Ledger& ledger, const Tick& tick) {
  const Contents& contents = snapshot.contents();
  Making file(folder, contents, rank, ledger);
  std::vector<std::byte> scratch;
  for (size_t block = 0; block < contents.blocks().size(); ++block) {
    file.add(block, snapshot.take(block, scratch));
    tick(file.written());
  }
  return file.finish();
}

}  // namespace outrigger::engine
