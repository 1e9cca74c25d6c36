// SPDX-License-Identifier: Apache-2.0
// What this rank writes into a checkpoint: the tensors of its file, and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/checksums.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/engine/sections.h"

namespace outrigger::engine {

// Bytes of the host that ride along: this rank's.
struct HostPart {
  std::string name;
  std::span<const std::byte> bytes;
};

class Contents {
 public:
  // shared_out: over all ranks each value once; of ranks that all have everything, each has what
  // would be its slice. all_here: what this rank keeps.
  enum class Extent : uint8_t { shared_out, all_here };
  // All outlive it.
  Contents(Declared& declared, Committed& committed, const checkpoint::Manifest& manifest,
           const std::vector<HostPart>& parts, Extent extent = Extent::shared_out);

  [[nodiscard]] const checkpoint::Outline& outline() const { return outline_; }
  // A row of the index for each tensor; its checksums are to come.
  [[nodiscard]] const std::vector<checkpoint::IndexRow>& rows() const { return rows_; }

  // Each has a tensor, or two, in this order; then come the parts.
  [[nodiscard]] const std::vector<Section>& sections() const { return sections_; }
  // Of all tensors, in the order of the file.
  [[nodiscard]] const std::vector<checkpoint::TensorBlock>& blocks() const { return blocks_; }

  struct Scratch {
    std::vector<std::byte> block;
  };
  // The bytes of a block; any thread where states are in memory, each with a scratch of its own.
  using Take = std::function<void(std::span<const std::byte> bytes)>;
  void read(size_t block, Scratch& scratch, const Take& take) const;
  // Blocks 0 … of blocks(), each once and nearly in order; by the engine's workers where states are
  // in memory, so several at a time. between: on this thread, now and then; may throw.
  void each(const std::function<void(size_t block, Scratch& scratch)>& body,
            const std::function<void()>& between) const;

  // False: a lease brings them from elsewhere, or a device has one stream for all.
  [[nodiscard]] bool is_in_memory() const;
  // True: the host sees these values where they are, or they are the host's.
  [[nodiscard]] bool is_seen_outside(size_t block) const;

 private:
  // Where the bytes of a tensor are: a plane of a section, or a part of the host's.
  struct Origin {
    size_t section = 0, plane = 0;
    const HostPart* part = nullptr;
  };

  Declared& declared_;
  Committed& committed_;
  std::vector<Section> sections_;
  std::vector<Origin> origins_;  // of each tensor
  std::vector<checkpoint::IndexRow> rows_;
  checkpoint::Outline outline_;
  std::vector<checkpoint::TensorBlock> blocks_;
};

}  // namespace outrigger::engine
