// SPDX-License-Identifier: Apache-2.0
// What this rank writes into a checkpoint: the tensors of its file, and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/engine/sections.h"

namespace outrigger::engine {

// Bytes of the host that ride along: this rank's.
struct HostPart {
  std::string name;
  std::span<const std::byte> bytes;
};

inline constexpr int64_t kRunAtATime = int64_t{1} << 20;  // elements

class Contents {
 public:
  // All outlive it. Of ranks that all have everything, each has what would be its slice.
  Contents(Declared& declared, Committed& committed, const checkpoint::Manifest& manifest,
           const std::vector<HostPart>& parts);

  [[nodiscard]] const std::vector<checkpoint::TensorSpec>& tensors() const { return tensors_; }
  // A row of the index for each tensor; its checksums are to come.
  [[nodiscard]] const std::vector<checkpoint::IndexRow>& rows() const { return rows_; }

  // Bytes [offset, offset + bytes.size()) of a tensor: each once, a tensor's from front to back.
  using Take = std::function<void(size_t tensor, int64_t offset, std::span<const std::byte> bytes)>;
  void each(const Take& take) const;

 private:
  Declared& declared_;
  Committed& committed_;
  const std::vector<HostPart>& parts_;
  std::vector<Section> sections_;  // each has a tensor, or two
  std::vector<checkpoint::TensorSpec> tensors_;
  std::vector<checkpoint::IndexRow> rows_;
};

// Bytes of the states' tensors, by the plan: of the rank with this slice.
[[nodiscard]] int64_t bytes_to_save(const layout::Model& model, const layout::Layout& layout,
                                    const config::EngineConfig& config, const comm::Shape& shape);

}  // namespace outrigger::engine
