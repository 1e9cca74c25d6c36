// SPDX-License-Identifier: Apache-2.0
// A part from every rank to every rank, of any sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/comm/communicator.h"

namespace outrigger::comm {

// Of one communicator, for one thread at a time. Parts go through a window of this object's own,
// which the first call makes, a piece of each at a time: one piece is written while the other ranks
// read the one before.
class AllToAll {
 public:
  // The communicator outlives it. Throws OTR_E_UNSUPPORTED where it has two levels.
  explicit AllToAll(Communicator& communicator);
  // parts: of sizes[r] bytes for rank r, one behind the other; received: from_sizes[r] bytes of
  // rank r. Collective. Throws OTR_E_MISMATCH on all ranks if one expects other sizes than are
  // sent: then what is received is not defined, and the communicator goes on.
  void run(const std::byte* parts, std::span<const size_t> sizes, std::byte* received,
           std::span<const size_t> from_sizes);

 private:
  void move(const std::byte* parts, std::span<const size_t> sizes, std::byte* received,
            std::span<const size_t> from_sizes, size_t largest);

  Communicator& communicator_;
  const size_t piece_bytes_;  // at a time
  std::shared_ptr<Window> window_;
};

}  // namespace outrigger::comm
