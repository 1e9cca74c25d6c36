// SPDX-License-Identifier: Apache-2.0
// Reading a checkpoint.
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/text.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/planes.h"
#include "core/checkpoint/source.h"
#include "core/engine/checkpoints.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using checkpoint::Folder;
using checkpoint::Manifest;
using kernels::Format;

namespace {

constexpr const char* kLoadCall = "otr_engine_load";
constexpr int64_t kRunAtATime = int64_t{1} << 20;  // elements

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += format_text("{}\"{}\"", i == 0 ? "" : ", ", printable(names[i]));
  }
  if (names.size() > kShown) text += format_text(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

// Of this rank, in the order of its memory: what becomes of a run of one of its states.
struct Checkpoints::Wanted {
  layout::Piece part;  // of a trainable root's piece, or of a frozen root
  int64_t saved;       // the parameter's number in the checkpoint
  Kept here, there;    // as what it is kept here, and was kept there
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

// Here every parameter that is in both, by its id: its number in the checkpoint.
std::map<int64_t, int64_t> Checkpoints::match(const Manifest& manifest, bool strict) const {
  std::map<std::string_view, int64_t> saved;
  for (size_t i = 0; i < manifest.parameters.size(); ++i) {
    saved.emplace(manifest.parameters[i].name, static_cast<int64_t>(i));
  }
  std::map<int64_t, int64_t> matched;
  std::vector<std::string> missing, extra;
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    const layout::Parameter& p = declared_.model.at(id);
    const auto found = saved.find(p.name);
    if (found == saved.end()) continue;
    const Manifest::Parameter& there = manifest.parameters[static_cast<size_t>(found->second)];
    if (!std::ranges::equal(there.shape, p.shape)) {
      fail(OTR_E_SHAPE, "{}: parameter \"{}\" has shape {} here and {} in the checkpoint",
           kLoadCall, p.name, tensor::text_of(p.shape), tensor::text_of(there.shape));
    }
    matched.emplace(id, there.root);
    saved.erase(found);
  }
  // Of tied parameters other programs keep one name, which need not be the root's here.
  for (const auto& [id, there] : std::map(matched))
    matched.emplace(declared_.model.at(id).root, there);
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    const layout::Parameter& p = declared_.model.at(id);
    if (!matched.contains(p.root)) missing.push_back(p.name);
  }
  for (const auto& [name, index] : saved) extra.emplace_back(name);
  if (strict && !(missing.empty() && extra.empty())) {
    fail(OTR_E_NOT_FOUND,
         "{}: the parameters differ:{}{}{}{}. Load what is in both with strict = 0 and weights "
         "only",
         kLoadCall, missing.empty() ? "" : " the checkpoint lacks ", listed(missing),
         extra.empty() ? "" : (missing.empty() ? " here are no " : "; here are no "),
         listed(extra));
  }
  return matched;
}

std::vector<Checkpoints::Wanted> Checkpoints::wanted(const Manifest& manifest,
                                                     const checkpoint::Source& source,
                                                     const LoadOptions& options) const {
  const std::map<int64_t, int64_t> matched = match(manifest, options.strict);
  std::vector<Wanted> all;
  for (const auto& [id, saved] : matched) {
    const layout::Parameter& p = declared_.model.at(id);
    if (p.root != id || p.count == 0) continue;
    const bool was_trainable = manifest.parameters[static_cast<size_t>(saved)].trainable;
    const Kept weight = was_trainable ? Kept::master : Kept::published;
    if (!p.trainable) {
      if (committed_.published.writes_frozen()) {
        all.push_back({{id, 0, p.count, 0, 0}, saved, Kept::published, weight});
      }
      continue;
    }
    const auto piece = committed_.local_piece(id);
    if (!piece) continue;
    all.push_back({*piece, saved, Kept::master, weight});
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

template <typename Body>
void Checkpoints::each_run(const std::vector<Wanted>& all, const Manifest& manifest,
                           checkpoint::Source& source, const Body& body) {
  std::array<std::vector<std::byte>, 2> planes;
  for (const Wanted& w : all) {
    const Format format = *manifest.formats.at(static_cast<size_t>(w.there));
    for (int64_t done = 0; done < w.part.count; done += kRunAtATime) {
      const layout::Piece part =
          layout::part_of(w.part, done, std::min(kRunAtATime, w.part.count - done));
      for (size_t i = 0; i < checkpoint::planes_of(format).size(); ++i) {
        source.read(w.saved, w.there, i, part.first, part.count, planes.at(i));
      }
      body(w, part, format, planes);
    }
  }
}

void Checkpoints::load(const std::string& directory, const std::string& tag,
                       const LoadOptions& options) {
  const uint64_t arguments = XXH3_64bits(tag.data(), tag.size()) + (options.weights_only ? 2 : 0) +
                             (options.strict ? 1 : 0);
  if (saver_) saver_->wait(-1, kLoadCall);
  agree_on(kLoadCall, arguments);
  require_not_busy(kLoadCall, false);
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
  // All that can be refused comes before anything is changed, so every byte is read twice: what was
  // right once comes from the system's cache.
  ranks.run([&] {
    const Folder parent = Folder::open(files_, directory);
    manifest = checkpoint::parse_manifest(
        std::string_view(text).substr(end + 1),
        parent.path_of(found) + "/" + std::string(checkpoint::kManifestName));
    source.emplace(checkpoint::open_checkpoint(parent, found), manifest);
    all = wanted(manifest, *source, options);
    if (!options.weights_only) {
      resumed = read_saved_progress(manifest.progress, declared_, run_, committed_.groups());
    }
    each_run(all, manifest, *source, [&](const auto&...) { ranks.tick(); });
  });
  health_.collective(kLoadCall, Again::never, [&] {
    committed_.gather.settle();  // what is prefetched is about to change
    each_run(all, manifest, *source,
             [&](const Wanted& w, const layout::Piece& part, Format format, const auto& planes) {
               values_.restore(part, w.here, format, planes);
             });
    values_.end_restore();
    if (resumed) resume(std::move(*resumed), declared_, run_, committed_.groups());
    control_.barrier(kLoadCall);
    values_.refresh_all();
  });
}

}  // namespace outrigger::engine
