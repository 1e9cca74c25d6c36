// SPDX-License-Identifier: Apache-2.0
// Snapshots in the ranks' memory, and the way back.
#include <algorithm>
#include <array>
#include <utility>

#include "core/base/text.h"
#include "core/checkpoint/complete.h"
#include "core/checkpoint/planes.h"
#include "core/comm/communicator.h"
#include "core/engine/checkpoints.h"
#include "core/engine/moments.h"
#include "core/engine/rank_copies.h"
#include "core/memory/copy.h"

namespace outrigger::engine {

using checkpoint::Manifest;
using Copy = RankCopies::Copy;
using Moment = RankCopies::Moment;

namespace {

constexpr const char* kSnapshotCall = "otr_engine_snapshot";
constexpr const char* kRestoreCall = "otr_engine_restore";
constexpr size_t kSent = size_t{4} << 20;  // bytes at a time

// A text of the root's.
std::string send_text(comm::Group& group, std::string text, int32_t root, const char* call) {
  uint64_t size = text.size();
  group.broadcast(std::as_writable_bytes(std::span(&size, 1)), root, call);
  text.resize(size);
  group.broadcast(std::as_writable_bytes(std::span(text)), root, call);
  return text;
}

// Bytes of the root's to who wants them: mine, or empty.
void send_bytes(comm::Group& group, std::span<std::byte> mine, int64_t bytes, int32_t root,
                const char* call) {
  std::vector<std::byte> passed_by(mine.empty() ? std::min(kSent, static_cast<size_t>(bytes)) : 0);
  for (size_t at = 0; at < static_cast<size_t>(bytes); at += kSent) {
    const size_t count = std::min(kSent, static_cast<size_t>(bytes) - at);
    const std::span part =
        mine.empty() ? std::span(passed_by).first(count) : mine.subspan(at, count);
    group.broadcast(part, root, call);
  }
}

}  // namespace

// ---- Snapshots ----------------------------------------------------------------------------------

void Checkpoints::copy_own(RankCopies& into, const std::vector<HostPart>& parts) {
  const Manifest now = manifest();
  const Contents contents(declared_, committed_, now, parts, Contents::Extent::all_here);
  const auto& outline = contents.outline();
  RankCopies::Text text{RankCopies::layout_of(contents), now.progress, {}, {}, {}};
  for (size_t i = 0; i < parts.size(); ++i) {
    const checkpoint::Entry& entry = outline.entries[outline.entries.size() - parts.size() + i];
    text.parts.push_back(parts[i].name);
    text.begins.push_back(entry.begin);
    text.ends.push_back(entry.begin + entry.bytes);
  }
  const Copy& own = into.add(control_.rank(), RankCopies::to_json(text),
                             outline.file_bytes - outline.data_begin());
  contents.each(
      [&](size_t number, Contents::Scratch& scratch) {
        const checkpoint::TensorBlock& block = contents.blocks()[number];
        const int64_t place = outline.entries[block.tensor].begin + block.offset;
        contents.read(number, scratch, [&](std::span<const std::byte> bytes) {
          memory::copy_past_caches(own.data().data() + place, bytes);
        });
      },
      [] {});
}

// Ranks that are far from each other, so on several hosts where there are: who dies together is
// near.
void Checkpoints::copy_others(RankCopies& into, int32_t replicas, Together& ranks) {
  const int32_t world = control_.size();
  const int32_t groups = std::max(1, world / (replicas + 1));
  std::unique_ptr<comm::Communicator> group;
  ranks.collective(
      [&] { group = comm::split(control_, control_.rank() % groups, control_.rank()); });
  struct Size {
    int64_t bytes;
    int32_t rank;
  };
  const Copy& own = into.copies().front();
  const Size mine{own.bytes, own.rank};
  std::vector<Size> sizes(static_cast<size_t>(group->size()));
  std::vector<std::string> texts(sizes.size());
  ranks.collective([&] {
    group->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(sizes)),
                      kSnapshotCall);
    for (int32_t r = 0; r < group->size(); ++r) {
      texts[static_cast<size_t>(r)] =
          send_text(*group, r == group->rank() ? own.text : "", r, kSnapshotCall);
    }
  });
  ranks.run([&] {
    for (size_t r = 0; r < sizes.size(); ++r) {
      if (sizes[r].rank != own.rank) into.add(sizes[r].rank, texts[r], sizes[r].bytes);
    }
  });
  ranks.collective([&] {
    for (int32_t r = 0; r < group->size(); ++r) {
      const Size& size = sizes[static_cast<size_t>(r)];
      send_bytes(*group, into.find(size.rank)->data(), size.bytes, r, kSnapshotCall);
    }
  });
}

void Checkpoints::snapshot(RankCopies& into, const SnapshotOptions& options) {
  into.clear();
  agree_on(kSnapshotCall, static_cast<uint64_t>(options.replicas));
  if (options.replicas < 0 || options.replicas > RankCopies::kMostReplicas ||
      options.replicas >= control_.size()) {
    fail(OTR_E_ARGUMENT, "{}: replicas = {}; of {} ranks, legal is 0 to {}", kSnapshotCall,
         options.replicas, control_.size(),
         std::min(control_.size() - 1, RankCopies::kMostReplicas));
  }
  Together ranks = together(kSnapshotCall);
  ranks.run([&] { copy_own(into, options.parts); });
  if (options.replicas > 0) copy_others(into, options.replicas, ranks);
  const std::string id = ranks.from_rank0([] { return checkpoint::new_id(); });
  into.seal({RankCopies::moment_id(id), run_.micro_steps, control_.size()});
}

// ---- The way back -------------------------------------------------------------------------------

namespace {

RankCopies* with(std::span<RankCopies* const> all, uint64_t id) {
  const auto found =
      std::ranges::find_if(all, [&](const RankCopies* one) { return one->moment().id == id; });
  return found == all.end() ? nullptr : *found;
}

}  // namespace

// Parts that their ranks lack, from who has them, into an empty snapshot.
RankCopies& Checkpoints::fetch_own(std::span<RankCopies* const> snapshots, const Moment& moment,
                                   const std::vector<int32_t>& holders, Together& ranks) {
  const int32_t rank = control_.rank();
  RankCopies* const held = with(snapshots, moment.id);
  RankCopies* own = held != nullptr && held->find(rank) != nullptr ? held : with(snapshots, 0);
  ranks.run([&] {
    if (own != nullptr) return;
    fail(OTR_E_ARGUMENT, "{}: this rank's part comes from rank {}: give an empty snapshot, too",
         kRestoreCall, holders[static_cast<size_t>(rank)]);
  });
  for (int32_t r = 0; r < control_.size(); ++r) {
    const int32_t from = holders[static_cast<size_t>(r)];
    if (from == r) continue;
    const Copy* const source = rank == from ? held->find(r) : nullptr;
    int64_t bytes = source == nullptr ? 0 : source->bytes;
    std::string text;
    ranks.collective([&] {
      control_.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), from, kRestoreCall);
      text = send_text(control_, source == nullptr ? "" : source->text, from, kRestoreCall);
    });
    std::span<std::byte> mine = source == nullptr ? std::span<std::byte>() : source->data();
    ranks.run([&] {
      if (rank != r) return;
      own->clear();
      mine = own->add(r, text, bytes).data();
    });
    ranks.collective([&] { send_bytes(control_, mine, bytes, from, kRestoreCall); });
    if (rank == r) own->seal(moment);
  }
  return *own;
}

void Checkpoints::restore(std::span<RankCopies* const> snapshots) {
  if (saver_) saver_->wait(-1, kRestoreCall);
  agree_on(kRestoreCall, 0);
  require_not_busy(kRestoreCall, false);
  Together ranks = together(kRestoreCall);
  std::array<HeldMoment, RankCopies::kMostGiven> mine{};
  for (size_t i = 0; i < snapshots.size(); ++i) {
    mine.at(i).moment = snapshots[i]->moment();
    for (const Copy& copy : snapshots[i]->copies()) {
      mine.at(i).ranks.at(static_cast<size_t>(mine.at(i).count++)) = copy.rank;
    }
  }
  std::vector<HeldMoment> all(RankCopies::kMostGiven * static_cast<size_t>(control_.size()));
  ranks.collective([&] {
    control_.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                        kRestoreCall);
  });
  const ChosenMoment chosen =
      choose_moment(all, control_.size(), kRestoreCall);  // alike on all ranks
  const Copy& own =
      *fetch_own(snapshots, chosen.moment, chosen.holders, ranks).find(control_.rank());

  const Manifest now = manifest();
  const Contents contents(declared_, committed_, now, {}, Contents::Extent::all_here);
  std::optional<Resumed> resumed;
  ranks.run([&] {
    const RankCopies::Text text = RankCopies::parse(own.text);
    if (text.layout != RankCopies::layout_of(contents)) {
      fail(OTR_E_MISMATCH,
           "{}: the snapshot is of other parameters, formats or shards than this engine has: what "
           "changed goes by way of otr_engine_save and otr_engine_load",
           kRestoreCall);
    }
    resumed = read_saved_progress(text.progress, declared_, Names(declared_.model), run_,
                                  committed_.groups());
  });
  health_.collective(kRestoreCall, Again::never, [&] {
    values_.settle(kRestoreCall);
    take(contents, own.data());
    values_.end_restore();
    resume(std::move(*resumed), declared_, run_, committed_.groups());
    control_.barrier(kRestoreCall);
    values_.refresh_all();
  });
}

void Checkpoints::take(const Contents& contents, std::span<const std::byte> data) {
  const auto& entries = contents.outline().entries;
  std::array<std::vector<std::byte>, 2> planes;
  size_t tensor = 0;
  for (const Section& s : contents.sections()) {
    const auto kinds = checkpoint::planes_of(s.format);
    // Of ranks that share them, one writes frozen parameters.
    const bool takes = s.kept != Kept::published || committed_.published.writes_frozen();
    for (int64_t done = 0; takes && done < s.count; done += kRunAtATime) {
      const int64_t count = std::min(kRunAtATime, s.count - done);
      for (size_t i = 0; i < kinds.size(); ++i) {
        const auto from =
            data.subspan(static_cast<size_t>(entries[tensor + i].begin + kinds[i].bytes(done)),
                         static_cast<size_t>(kinds[i].bytes(count)));
        planes.at(i).assign(from.begin(), from.end());
      }
      const layout::Piece whole = s.kept == Kept::published
                                      ? layout::Piece{s.parameter, 0, s.count, 0, 0}
                                      : *committed_.local_piece(s.parameter);
      values_.restore(layout::part_of(whole, done, count), s.kept, s.format, planes);
    }
    tensor += kinds.size();
  }
}

}  // namespace outrigger::engine
