// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint.
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "core/base/text.h"
#include "core/checkpoint/checksums.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/safetensors.h"
#include "core/engine/checkpoints.h"
#include "outrigger.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::IndexRow;
using checkpoint::Manifest;
using kernels::Format;

namespace {

constexpr const char* kSaveCall = "otr_engine_save";

std::string new_id() {
  std::random_device random;
  return format_text("{:08x}{:08x}", random(), random());
}

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

// What rank 0 has from the beginning of a save to its end.
struct Leading {
  std::unique_ptr<checkpoint::Lock> lock;
  std::unique_ptr<checkpoint::Staging> staging;
};

}  // namespace

// Of one rank.
struct Checkpoints::Saved {
  std::vector<IndexRow> rows;
  std::vector<uint64_t> checksums;
  int64_t bytes = 0;
  void end_tensor(IndexRow row, checkpoint::Hasher& hasher) {
    row.checksum = static_cast<int64_t>(checksums.size());
    rows.push_back(row);
    const std::vector<uint64_t> sums = hasher.take();
    checksums.insert(checksums.end(), sums.begin(), sums.end());
  }
};

Manifest Checkpoints::manifest_of(const std::string& id) const {
  Manifest manifest;
  manifest.id = id;
  manifest.library = OTR_VERSION_STRING;
  manifest.progress = to_json(progress_of(declared_, run_, committed_.groups()));
  manifest.configuration = declared_.config.effective_json;
  for (int64_t i = 0; i < declared_.model.size(); ++i) {
    const layout::Parameter& p = declared_.model.at(i);
    const auto group = declared_.model.groups().at(static_cast<size_t>(p.group));
    manifest.parameters.push_back(
        {p.name, {p.shape.begin(), p.shape.end()}, p.trainable, p.root, group});
  }
  const config::OptimizerConfig& optimizer = declared_.config.optimizer;
  const auto set = [&](Kept kept, Format format) {
    manifest.formats.at(static_cast<size_t>(kept)) = format;
  };
  set(Kept::master, committed_.states->format(State::master));
  if (optimizer.keeps_exp_avg()) set(Kept::exp_avg, committed_.states->format(State::exp_avg));
  if (optimizer.keeps_exp_avg_sq()) {
    set(Kept::exp_avg_sq, committed_.states->format(State::exp_avg_sq));
  }
  set(Kept::published, committed_.published.format());
  return manifest;
}

// Where every rank has everything, each writes what would be its slice.
std::vector<Section> Checkpoints::sections_to_write() const {
  std::vector<Section> sections = sections_of(committed_);
  if (committed_.sharded()) return sections;
  std::vector<Section> own;
  for (Section& s : sections) {
    if (s.kept != Kept::published) {
      const auto piece = committed_.layout.piece(declared_.model, s.parameter, control_.slice());
      if (!piece) continue;
      s.first = piece->first;
      s.count = piece->count;
    }
    own.push_back(s);
  }
  return own;
}

Checkpoints::Saved Checkpoints::write_file(Folder& folder, const Manifest& manifest,
                                           const std::vector<HostPart>& parts) {
  const std::vector<Section> sections = sections_to_write();
  std::vector<checkpoint::TensorSpec> tensors;
  for (const Section& s : sections) {
    const Manifest::Parameter& p = manifest.parameters[static_cast<size_t>(s.parameter)];
    for (const checkpoint::Plane& plane : checkpoint::planes_of(s.format)) {
      const bool whole = s.count == p.count() && plane.per == 1;
      tensors.push_back({checkpoint::tensor_name(p, s.kept, plane.suffix, s.first, s.count),
                         plane.dtype,
                         whole ? p.shape : std::vector<int64_t>{plane.extent(s.count)}});
    }
  }
  for (const HostPart& part : parts) {
    tensors.push_back({checkpoint::part_name(part.name),
                       checkpoint::Dtype::u8,
                       {static_cast<int64_t>(part.bytes.size())}});
  }
  const int64_t rank = control_.rank();
  checkpoint::Writer writer(folder, checkpoint::rank_file(rank), std::move(tensors),
                            {{"checkpoint", manifest.id}, {"rank", std::to_string(rank)}});
  Saved saved;
  std::array<checkpoint::Hasher, 2> hashers;
  std::vector<std::byte> scratch;
  size_t tensor = 0;
  for (const Section& s : sections) {
    const auto planes = checkpoint::planes_of(s.format);
    for (int64_t done = 0; done < s.count; done += kRunAtATime) {
      Section part = s;
      part.first += done;
      part.count = std::min(kRunAtATime, s.count - done);
      visit_section(declared_, committed_, part, [&](const checkpoint::Run& run) {
        for (size_t i = 0; i < planes.size(); ++i) {
          const auto bytes = checkpoint::plane_bytes(s.format, i, run, scratch);
          hashers.at(i).add(bytes);
          writer.write(tensor + i, planes[i].bytes(done), bytes);
        }
      });
    }
    for (size_t i = 0; i < planes.size(); ++i) {
      saved.end_tensor({rank, s.parameter, static_cast<int64_t>(s.kept), static_cast<int64_t>(i),
                        s.first, s.count, 0},
                       hashers.at(i));
    }
    tensor += planes.size();
  }
  for (const HostPart& part : parts) {
    hashers[0].add(part.bytes);
    writer.write(tensor++, 0, part.bytes);
    saved.end_tensor({rank, -1, 0, 0, checkpoint::part_hash(part.name),
                      static_cast<int64_t>(part.bytes.size()), 0},
                     hashers[0]);
  }
  writer.finish();
  saved.bytes = writer.file_bytes();
  return saved;
}

// On all ranks: their number is small beside what a row says.
checkpoint::Index Checkpoints::gather_index(const Saved& mine, std::vector<int64_t>& bytes) {
  struct Sizes {
    uint64_t rows, checksums;
    int64_t bytes;
  };
  const Sizes own{mine.rows.size(), mine.checksums.size(), mine.bytes};
  std::vector<Sizes> all(static_cast<size_t>(control_.size()));
  control_.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)),
                      kSaveCall);
  checkpoint::Index index;
  for (int32_t r = 0; r < control_.size(); ++r) {
    const Sizes& sizes = all[static_cast<size_t>(r)];
    bytes.push_back(sizes.bytes);
    std::vector<IndexRow> rows(sizes.rows);
    std::vector<uint64_t> sums(sizes.checksums);
    if (r == control_.rank()) {
      rows = mine.rows;
      sums = mine.checksums;
    }
    control_.broadcast(std::as_writable_bytes(std::span(rows)), r, kSaveCall);
    control_.broadcast(std::as_writable_bytes(std::span(sums)), r, kSaveCall);
    for (IndexRow& row : rows) row.checksum += static_cast<int64_t>(index.checksums.size());
    index.rows.insert(index.rows.end(), rows.begin(), rows.end());
    index.checksums.insert(index.checksums.end(), sums.begin(), sums.end());
  }
  return index;
}

void Checkpoints::save(const std::string& directory, const std::string& tag,
                       const SaveOptions& options) {
  const bool leads = control_.rank() == 0;
  Leading leading;
  const uint64_t arguments = XXH3_64bits(tag.data(), tag.size()) +
                             static_cast<uint64_t>(options.keep_last) * 2 +
                             (options.replace ? 1 : 0);
  agree_on(kSaveCall, arguments);
  const std::string begun = from_rank0(kSaveCall, [&] {
    checkpoint::require_tag(tag);
    leading.lock = std::make_unique<checkpoint::Lock>(Folder::open(files_, directory));
    checkpoint::sweep(*leading.lock);
    leading.staging = std::make_unique<checkpoint::Staging>(*leading.lock, tag);
    return format_text("{}\n{}", new_id(), leading.staging->name());
  });
  const size_t end = begun.find('\n');
  Manifest manifest = manifest_of(begun.substr(0, end));
  Saved mine;
  together(kSaveCall, [&] {
    Folder folder = Folder::open(files_, directory).open_folder(begun.substr(end + 1));
    mine = write_file(folder, manifest, options.parts);
  });
  checkpoint::Index index;
  health_.collective(kSaveCall, Again::never,
                     [&] { index = gather_index(mine, manifest.file_bytes); });
  together(kSaveCall, [&] {
    if (!leads) return;
    Folder& folder = leading.staging->folder();
    checkpoint::write_index(folder, index, manifest);
    const std::string text = checkpoint::to_json(manifest);
    checkpoint::File file = folder.create_file(checkpoint::kManifestName);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
    file.close();
    leading.staging->commit(options.replace);
    checkpoint::set_latest(*leading.lock, tag);
    if (options.keep_last > 0) {
      const Folder& parent = leading.lock->folder();
      checkpoint::keep_last(*leading.lock, static_cast<size_t>(options.keep_last),
                            [&](const std::string& other) { return steps_of(parent, other); });
    }
  });
}

}  // namespace outrigger::engine
