// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training, between two windows: each rank writes what it keeps into a file of its
// own, rank 0 makes the whole appear (save.cpp). A load reads the runs that this rank's pieces
// cover, whatever ranks, stage, mesh and formats the checkpoint was made with (load.cpp), of those
// parameters that it is to take (selection.h, match.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/source.h"
#include "core/comm/communicator.h"
#include "core/engine/health.h"
#include "core/engine/rank_copies.h"
#include "core/engine/run.h"
#include "core/engine/saver.h"
#include "core/engine/selection.h"
#include "core/engine/together.h"
#include "core/engine/values.h"

namespace outrigger::engine {

struct SaveOptions {
  std::vector<HostPart> parts;
  int32_t keep_last = 0;          // complete checkpoints that stay, the latest ones; 0: all
  bool replace = false;           // the one of that tag
  bool asynchronous = false;      // returns when the states are copied
  bool refuse_when_busy = false;  // instead of waiting for the asynchronous save before
};

struct SnapshotOptions {
  std::vector<HostPart> parts;
  int32_t replicas = 0;  // other ranks that keep a copy of this one's
};

struct LoadOptions {
  bool weights_only = false;  // no moments, no progress
  bool strict = true;         // the same parameters here and there
  Wish wish;                  // but for its renamings, with weights_only
};

inline constexpr const char* kLoadCall = "otr_engine_load";

class Checkpoints {
 public:
  // saver: of asynchronous saves; made by the first, where it is null.
  Checkpoints(Declared& declared, Committed& committed, Run& run, Values& values, Health& health,
              checkpoint::Files& files, std::unique_ptr<Saver>& saver)
      : declared_(declared),
        committed_(committed),
        run_(run),
        values_(values),
        health_(health),
        control_(committed.control),
        files_(files),
        saver_(saver) {}

  // Both are collective. A failure is told to all ranks and leaves the engine as it was; one of
  // load after it has begun to change values poisons.
  void save(const std::string& directory, const std::string& tag, const SaveOptions& options);
  // tag empty: the latest.
  void load(const std::string& directory, const std::string& tag, const LoadOptions& options);

  // In memory (copies.cpp); both are collective and fail as save and load.
  void snapshot(RankCopies& into, const SnapshotOptions& options);
  // From the latest moment of which every rank's part is in some rank's snapshots.
  void restore(std::span<RankCopies* const> snapshots);

 private:
  static constexpr int64_t kRunAtATime = int64_t{1} << 20;  // elements
  struct Wanted;
  [[nodiscard]] Together together(const char* call);
  // Where the ranks meet; throws OTR_E_MISMATCH where their calls were given others.
  void agree_on(const char* call, uint64_t arguments);

  // What comes before a call that reads or writes checkpoints, while one may be written. Throws on
  // all ranks what the last save failed with, if not all were told.
  void require_not_busy(const char* call, bool refuse);
  void require_saver(Together& ranks);
  [[nodiscard]] checkpoint::Manifest manifest() const;

  void copy_own(RankCopies& into, const std::vector<HostPart>& parts);
  void copy_others(RankCopies& into, int32_t replicas, Together& ranks);
  RankCopies& fetch_own(std::span<RankCopies* const> snapshots, const RankCopies::Moment& moment,
                        const std::vector<int32_t>& holders, Together& ranks);
  void take(const Contents& contents, std::span<const std::byte> data);

  [[nodiscard]] std::map<int64_t, int64_t> match(const checkpoint::Manifest& manifest,
                                                 const Selection& selection, bool strict) const;
  [[nodiscard]] Names names_there(const checkpoint::Manifest& manifest,
                                  const std::map<int64_t, int64_t>& matched) const;
  [[nodiscard]] std::vector<Wanted> wanted(const checkpoint::Manifest& manifest,
                                           const checkpoint::Source& source,
                                           const std::map<int64_t, int64_t>& matched,
                                           const LoadOptions& options) const;
  // Runs of what is wanted that are read in one go.
  struct WantedRun;
  using Batch = std::vector<WantedRun>;
  using Planes = std::array<std::vector<std::byte>, 2>;
  [[nodiscard]] static std::vector<Batch> batches_of(const std::vector<Wanted>& all);
  // body(wanted, part, format, planes) for each run, in order, on this thread: its planes as they
  // were kept, read ahead by other threads.
  template <typename Body>
  void each_run(const std::vector<Batch>& batches, const checkpoint::Manifest& manifest,
                checkpoint::Source& source, const Body& body) const;

  Declared& declared_;
  Committed& committed_;
  Run& run_;
  Values& values_;
  Health& health_;
  comm::Communicator& control_;
  checkpoint::Files& files_;
  std::unique_ptr<Saver>& saver_;
};

}  // namespace outrigger::engine
