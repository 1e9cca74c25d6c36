// SPDX-License-Identifier: Apache-2.0
// Values of a checkpoint as float32, whatever they are stored as.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/planes.h"
#include "core/checkpoint/source.h"

namespace outrigger::checkpoint {

inline constexpr int64_t kDecodedAtATime = int64_t{1} << 20;  // elements

// For one thread; holds a few times kDecodedAtATime elements. Source and manifest outlive it.
class Decoder {
 public:
  Decoder(Source& source, const Manifest& manifest) : source_(source), manifest_(manifest) {}

  // Elements [first, first + out.size()) of a parameter's state; an alias has its root's. Throws
  // OTR_E_NOT_FOUND where the state is not kept, OTR_E_ARGUMENT where the elements are not there.
  void read(int64_t parameter, Kept kept, int64_t first, std::span<float> out);
  // The weight: the master, or the published value of a frozen parameter.
  void read_weight(int64_t parameter, int64_t first, std::span<float> out);
  // What an acquire showed: the weight as it was published.
  void read_published(int64_t parameter, int64_t first, std::span<float> out);

 private:
  [[nodiscard]] int64_t root_of(int64_t parameter) const {
    return manifest_.parameters[static_cast<size_t>(parameter)].root;
  }
  [[nodiscard]] Kept weight_of(int64_t root) const {
    return manifest_.parameters[static_cast<size_t>(root)].trainable ? Kept::master
                                                                     : Kept::published;
  }
  void require(int64_t root, Kept kept, int64_t first, int64_t count) const;
  // What begins and ends at leaves.
  void decode(int64_t root, Kept kept, int64_t first, std::span<float> out);
  void decode_upper(int64_t root, int64_t first, std::span<float> out);
  template <typename Body>
  void in_leaves(int64_t root, int64_t first, std::span<float> out, const Body& body);

  Source& source_;
  const Manifest& manifest_;
  Source::Cursors cursors_;
  std::array<std::vector<std::byte>, 2> planes_;
  OwnRun run_;
  std::vector<std::byte> rounded_;
  std::vector<float> edge_;  // of which a part was asked for
};

}  // namespace outrigger::checkpoint
