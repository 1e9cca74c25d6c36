// SPDX-License-Identifier: Apache-2.0
// Reading a checkpoint.
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/lanes.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/planes.h"
#include "core/checkpoint/source.h"
#include "core/engine/checkpoints.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::Manifest;
using kernels::Format;

namespace {

// The part of a piece that is among the parameter's first elements.
std::optional<layout::Piece> among(const layout::Piece& piece, int64_t elements) {
  const int64_t count = std::min(piece.count, elements - piece.first);
  if (count <= 0) return {};
  return layout::part_of(piece, 0, count);
}

}  // namespace

// Of this rank, in the order of its memory: what becomes of a run of one of its states.
struct Checkpoints::Wanted {
  layout::Piece part;  // of a trainable root's piece, or of a frozen root
  int64_t saved;       // the parameter's number in the checkpoint
  Kept here, there;    // as what it is kept here, and was kept there
};

struct Checkpoints::WantedRun {
  const Wanted* wanted;
  layout::Piece part;
};

Together Checkpoints::together(const char* call) {
  return {control_, call,
          [this, call](const auto& body) { health_.collective(call, Again::never, body); }};
}

void Checkpoints::agree_on(const char* call, uint64_t arguments) {
  comm::Compared<uint64_t> compared{};
  health_.collective(
      call, Again::at_first, [&] { compared = comm::compare(control_, arguments, call); },
      arguments);
  if (compared.rank >= 0) {
    fail(OTR_E_MISMATCH, "{}: rank 0 and rank {} call it with other tags or options", call,
         compared.rank);
  }
}

std::vector<Checkpoints::Wanted> Checkpoints::wanted(const Manifest& manifest,
                                                     const checkpoint::Source& source,
                                                     const std::map<int64_t, int64_t>& matched,
                                                     const LoadOptions& options) const {
  std::vector<Wanted> all;
  for (const auto& [id, saved] : matched) {
    const layout::Parameter& p = declared_.model.at(id);
    if (p.root != id || p.count == 0) continue;
    const Manifest::Parameter& there = manifest.parameters[static_cast<size_t>(saved)];
    const Kept weight = there.trainable ? Kept::master : Kept::published;
    if (!p.trainable) {
      const auto part = among({id, 0, p.count, 0, 0}, there.count());
      if (part && committed_.published.writes_frozen()) {
        all.push_back({*part, saved, Kept::published, weight});
      }
      continue;
    }
    const auto piece = committed_.local_piece(id);
    if (!piece) continue;
    // Of a resized one the rows that are in both, which are the first elements of both.
    if (const auto part = among(*piece, there.count())) {
      all.push_back({*part, saved, Kept::master, weight});
    }
    for (const Kept moment : {Kept::exp_avg, Kept::exp_avg_sq}) {
      if (options.weights_only || !committed_.states->keeps(static_cast<State>(moment), id))
        continue;
      if (!source.has(saved, moment)) {
        fail(OTR_E_NOT_FOUND,
             "{}: the checkpoint has no {} of \"{}\", which {} keeps: load weights only, or use "
             "the optimizer that it was made with",
             kLoadCall, checkpoint::name_of(moment), p.name, declared_.config.optimizer.type);
      }
      all.push_back({*piece, saved, moment, moment});
    }
  }
  return all;
}

// Several at a time, as a disk's bandwidth wants it; small ones together.
std::vector<Checkpoints::Batch> Checkpoints::batches_of(const std::vector<Wanted>& all) {
  std::vector<Batch> batches;
  int64_t room = 0;
  for (const Wanted& w : all) {
    for (int64_t done = 0; done < w.part.count; done += kRunAtATime) {
      const int64_t count = std::min(kRunAtATime, w.part.count - done);
      if (room < count) {
        batches.emplace_back();
        room = kRunAtATime;
      }
      batches.back().push_back({&w, layout::part_of(w.part, done, count)});
      room -= count;
    }
  }
  return batches;
}

template <typename Body>
void Checkpoints::each_run(const std::vector<Batch>& batches, const Manifest& manifest,
                           checkpoint::Source& source, const Body& body) const {
  constexpr size_t kLanes = 4;
  struct Lane {
    checkpoint::Source::Cursors cursors;
    std::vector<Planes> planes;  // of the batch's runs
  };
  std::array<Lane, kLanes> lanes;
  const memory::Charge charge(declared_.ledger, memory::Purpose::acquired,
                              static_cast<int64_t>(std::min(kLanes, batches.size())) * kRunAtATime *
                                  static_cast<int64_t>(sizeof(float)));
  const auto format_of = [&](const Wanted& w) {
    return *manifest.formats.at(static_cast<size_t>(w.there));
  };
  const auto read = [&](int64_t l, int64_t i) {
    Lane& lane = lanes.at(static_cast<size_t>(l));
    const Batch& batch = batches[static_cast<size_t>(i)];
    if (batch.size() > 1) lane.planes.clear();  // whose parts would each keep their largest size
    lane.planes.resize(batch.size());
    for (size_t k = 0; k < batch.size(); ++k) {
      const auto& [w, part] = batch[k];
      for (size_t plane = 0; plane < checkpoint::planes_of(format_of(*w)).size(); ++plane) {
        source.read(lane.cursors, w->saved, w->there, plane, part.first, part.count,
                    lane.planes[k].at(plane));
      }
    }
  };
  const auto give = [&](int64_t l, int64_t i) {
    const Batch& batch = batches[static_cast<size_t>(i)];
    for (size_t k = 0; k < batch.size(); ++k) {
      const auto& [w, part] = batch[k];
      body(*w, part, format_of(*w), lanes.at(static_cast<size_t>(l)).planes[k]);
    }
  };
  in_lanes(kLanes, static_cast<int64_t>(batches.size()), "a load", read, give);
}

void Checkpoints::load(const std::string& directory, const std::string& tag,
                       const LoadOptions& options) {
  const uint64_t arguments = XXH3_64bits_withSeed(tag.data(), tag.size(), options.wish.hash()) +
                             (options.weights_only ? 2 : 0) + (options.strict ? 1 : 0);
  if (saver_) saver_->wait(-1, kLoadCall);
  agree_on(kLoadCall, arguments);
  require_not_busy(kLoadCall, false);
  const Selection selection(declared_.model, options.wish);  // fails on all ranks alike
  Together ranks = together(kLoadCall);
  const std::string text = ranks.from_rank0([&] {
    const Folder parent = Folder::open(files_, directory);
    const std::string found = checkpoint::tag_or_latest(parent, tag);
    return found + "\n" + checkpoint::read_manifest(checkpoint::open_checkpoint(parent, found));
  });
  const size_t end = text.find('\n');
  const std::string found = text.substr(0, end);
  Manifest manifest;
  std::optional<checkpoint::Source> source;
  std::optional<Resumed> resumed;
  std::vector<Wanted> all;
  std::vector<Batch> batches;
  // All that can be refused comes before anything is changed, so every byte is read twice: what was
  // right once comes from the system's cache.
  ranks.run([&] {
    const Folder parent = Folder::open(files_, directory);
    manifest = checkpoint::parse_manifest(
        std::string_view(text).substr(end + 1),
        parent.path_of(found) + "/" + std::string(checkpoint::kManifestName));
    source.emplace(checkpoint::open_checkpoint(parent, found), manifest);
    const std::map<int64_t, int64_t> matched = match(manifest, selection, options.strict);
    all = wanted(manifest, *source, matched, options);
    batches = batches_of(all);
    if (!options.weights_only) {
      resumed = read_saved_progress(manifest.progress, declared_, names_there(manifest, matched),
                                    run_, committed_.groups());
    }
    each_run(batches, manifest, *source, [&](const auto&...) { ranks.tick(); });
  });
  health_.collective(kLoadCall, Again::never, [&] {
    values_.settle(kLoadCall);
    each_run(batches, manifest, *source,
             [&](const Wanted& w, const layout::Piece& part, Format format, const Planes& planes) {
               values_.restore(part, w.here, format, planes);
             });
    values_.end_restore();
    if (resumed) resume(std::move(*resumed), declared_, run_, committed_.groups());
    control_.barrier(kLoadCall);
    values_.refresh_all();
  });
}

}  // namespace outrigger::engine
