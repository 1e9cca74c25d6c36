// SPDX-License-Identifier: Apache-2.0
#include "core/engine/save_job.h"

#include <optional>
#include <utility>

#include "core/base/text.h"
#include "core/checkpoint/complete.h"
#include "core/engine/progress.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::IndexRow;
using checkpoint::Manifest;

namespace {

// Checkpoints are ordered by how many steps their training had made.
std::optional<int64_t> steps_of(const Folder& parent, const std::string& tag) {
  try {
    const Folder folder = checkpoint::open_checkpoint(parent, tag);
    const std::string text = checkpoint::read_manifest(folder);
    const Manifest manifest =
        checkpoint::parse_manifest(text, folder.path_of(checkpoint::kManifestName));
    return parse_progress(manifest.progress).micro_steps;
  } catch (const Error&) {
    return {};  // of another program, or damaged: neither counts nor goes
  }
}

}  // namespace

void keep_latest(checkpoint::Lock& lock, int32_t count) {
  if (count == 0) return;
  checkpoint::keep_last(lock, static_cast<size_t>(count),
                        [&](const std::string& tag) { return steps_of(lock.folder(), tag); });
}

SaveJob::SaveJob(Together& together, checkpoint::Files& files, SaveTarget target, Manifest manifest)
    : target_(std::move(target)), manifest_(std::move(manifest)) {
  const std::string begun = together.from_rank0([&] {
    lock_ = std::make_unique<checkpoint::Lock>(
        checkpoint::open_to_write(files, target_.directory, target_.tag));
    checkpoint::sweep(*lock_);
    checkpoint::require_free(lock_->folder(), target_.tag, target_.replace);
    staging_ = std::make_unique<checkpoint::Staging>(*lock_, target_.tag);
    return format_text("{}\n{}", checkpoint::new_id(), staging_->name());
  });
  const size_t end = begun.find('\n');
  manifest_.id = begun.substr(0, end);
  together.run([&] {
    folder_.emplace(Folder::open(files, target_.directory).open_folder(begun.substr(end + 1)));
  });
}

// On all ranks: their number is small beside what a row says.
checkpoint::Index SaveJob::gather_index(Together& together, const RankFile& mine) {
  struct Sizes {
    uint64_t rows, checksums;
    int64_t bytes;
  };
  comm::Group& group = together.group();
  const char* const call = together.call();
  const Sizes own{mine.rows.size(), mine.checksums.size(), mine.bytes};
  std::vector<Sizes> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), call);
  checkpoint::Index index;
  for (int32_t r = 0; r < group.size(); ++r) {
    const Sizes& sizes = all[static_cast<size_t>(r)];
    manifest_.file_bytes.push_back(sizes.bytes);
    std::vector<IndexRow> rows(sizes.rows);
    std::vector<uint64_t> sums(sizes.checksums);
    if (r == group.rank()) {
      rows = mine.rows;
      sums = mine.checksums;
    }
    group.broadcast(std::as_writable_bytes(std::span(rows)), r, call);
    group.broadcast(std::as_writable_bytes(std::span(sums)), r, call);
    for (IndexRow& row : rows) row.checksum += static_cast<int64_t>(index.checksums.size());
    index.rows.insert(index.rows.end(), rows.begin(), rows.end());
    index.checksums.insert(index.checksums.end(), sums.begin(), sums.end());
  }
  return index;
}

void SaveJob::publish(const checkpoint::Index& index) {
  checkpoint::complete(*lock_, *staging_, target_.tag, index, manifest_, target_.replace);
  keep_latest(*lock_, target_.keep_last);
}

void SaveJob::release() noexcept {
  folder_.reset();
  staging_.reset();
  lock_.reset();
}

void SaveJob::finish(Together& together, const Write& write) {
  RankFile mine;
  together.run([&] { mine = write(*folder_); });
  folder_.reset();
  checkpoint::Index index;
  together.collective([&] { index = gather_index(together, mine); });
  together.run([&] {
    if (together.leads()) publish(index);
  });
}

}  // namespace outrigger::engine
