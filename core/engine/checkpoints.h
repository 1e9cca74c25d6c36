// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training, between two windows: each rank writes what it keeps into a file of its
// own, rank 0 makes the whole appear (save.cpp). A load reads the runs that this rank's pieces
// cover, whatever ranks, stage, mesh and formats the checkpoint was made with (load.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/source.h"
#include "core/comm/combine.h"
#include "core/comm/communicator.h"
#include "core/comm/verdict.h"
#include "core/engine/health.h"
#include "core/engine/run.h"
#include "core/engine/sections.h"
#include "core/engine/values.h"

namespace outrigger::engine {

inline constexpr int64_t kRunAtATime = int64_t{1} << 20;  // elements

// Bytes of the host that ride along: this rank's.
struct HostPart {
  std::string name;
  std::span<const std::byte> bytes;
};

struct SaveOptions {
  std::vector<HostPart> parts;
  int32_t keep_last = 0;  // complete checkpoints that stay, the latest ones; 0: all
  bool replace = false;   // the one of that tag
};

struct LoadOptions {
  bool weights_only = false;  // no moments, no progress
  bool strict = true;         // the same parameters here and there
};

class Checkpoints {
 public:
  Checkpoints(Declared& declared, Committed& committed, Run& run, Values& values, Health& health,
              checkpoint::Files& files)
      : declared_(declared),
        committed_(committed),
        run_(run),
        values_(values),
        health_(health),
        control_(committed.control),
        files_(files) {}

  // Both are collective. A failure is told to all ranks and leaves the engine as it was; one of
  // load after it has begun to change values poisons.
  void save(const std::string& directory, const std::string& tag, const SaveOptions& options);
  // tag empty: the latest.
  void load(const std::string& directory, const std::string& tag, const LoadOptions& options);

 private:
  struct Saved;
  struct Wanted;
  // Runs a part of this rank's; what a rank could not do, none has done.
  template <typename Body>
  void together(const char* call, const Body& body);
  // Where the ranks meet; throws OTR_E_MISMATCH where their calls were given others.
  void agree_on(const char* call, uint64_t arguments);
  // A text of rank 0's, or the failure of what makes it.
  template <typename Body>
  std::string from_rank0(const char* call, const Body& body);

  [[nodiscard]] checkpoint::Manifest manifest_of(const std::string& id) const;
  [[nodiscard]] std::vector<Section> sections_to_write() const;
  [[nodiscard]] Saved write_file(checkpoint::Folder& folder, const checkpoint::Manifest& manifest,
                                 const std::vector<HostPart>& parts);
  [[nodiscard]] checkpoint::Index gather_index(const Saved& mine, std::vector<int64_t>& bytes);

  [[nodiscard]] std::map<int64_t, int64_t> match(const checkpoint::Manifest& manifest,
                                                 bool strict) const;
  [[nodiscard]] std::vector<Wanted> wanted(const checkpoint::Manifest& manifest,
                                           const checkpoint::Source& source,
                                           const LoadOptions& options) const;
  // What is wanted, in parts: their planes as they were kept.
  template <typename Body>
  static void each_run(const std::vector<Wanted>& all, const checkpoint::Manifest& manifest,
                       checkpoint::Source& source, const Body& body);

  Declared& declared_;
  Committed& committed_;
  Run& run_;
  Values& values_;
  Health& health_;
  comm::Communicator& control_;
  checkpoint::Files& files_;
};

// Whoever fails, fails on all ranks, with one text that names the rank.
template <typename Body>
void Checkpoints::together(const char* call, const Body& body) {
  comm::FirstVerdict first;
  try {
    body();
  } catch (const Error& error) {
    first.set(control_.rank(), error.status(), error.what());
  } catch (const std::bad_alloc&) {
    first.set(control_.rank(), OTR_E_OUT_OF_MEMORY, "no memory");
  }
  health_.collective(call, Again::never,
                     [&] { comm::combine_value(control_, first, comm::merge_first, call); });
  first.require(call);
}

template <typename Body>
std::string Checkpoints::from_rank0(const char* call, const Body& body) {
  std::string text;
  together(call, [&] {
    if (control_.rank() == 0) text = body();
  });
  uint64_t size = text.size();
  health_.collective(call, Again::never, [&] {
    control_.broadcast(std::as_writable_bytes(std::span(&size, 1)), 0, call);
    text.resize(size);
    control_.broadcast(std::as_writable_bytes(std::span(text)), 0, call);
  });
  return text;
}

}  // namespace outrigger::engine
