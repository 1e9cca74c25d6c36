// SPDX-License-Identifier: Apache-2.0
// How many bytes an engine's big blocks have on one rank, and where. Storage and reducers allocate
// by it, and the estimate adds it up, so the two agree to the byte.
#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/shape.h"
#include "core/config/config.h"
#include "core/layout/layout.h"
#include "core/memory/ledger.h"
#include "core/optimizer/newton_schulz.h"

namespace outrigger::engine {

// Where the published parameters are:
//   copy      stage 0: every rank has a copy
//   shared    ranks that share memory, and shall, have one copy; each writes its own slices of it.
//             On the CPU, or with a device's parameters in host memory; not if weights are
//             quantised
//   replica   else, stages 1 and 2: every rank has a copy, and the slices are gathered into it
//   slices    else, stage 3: every rank has its slices, and the frozen parameters, which have none
enum class Home : uint8_t { copy, shared, replica, slices };

// What a rank is made of.
struct Machine {
  comm::Shape shape;
  bool on_device = false;  // parameters and gradients are on a device
};

using kernels::bytes_of;

// Elements at which a bucket is closed. Where the user has set none, a rank's message to each other
// one shall not get smaller however many slices there are, as long as buckets are a small part of
// the model.
[[nodiscard]] int64_t bucket_elements(const layout::Model& model,
                                      const config::EngineConfig& config, int32_t slices);

// Parameters with a lower id keep sums, masters and moments on the device although the others are
// offloaded, so that about the configured part of the elements is: those whose gradients come last
// and which the next forward needs first, since nothing could hide their copies. 0: none do.
[[nodiscard]] int64_t kept_on_device(const layout::Model& model,
                                     const config::EngineConfig& config);

// Consecutive buckets whose sums, masters and moments lie in one memory.
struct Side {
  memory::Space back = memory::Space::host;
  // Not if the master's format is the published one, and so is its place: one copy serves as both.
  bool separate_master = false;
  int64_t begin = 0, end = 0;     // buckets
  int64_t flat = 0, shard = 0;    // of its first element; where all is kept, both in the flat space
  int64_t all = 0, elements = 0;  // of its buckets, and of what this rank keeps of them
  int64_t largest = 0;            // bucket's elements
  uint64_t bucket_buffers = 1;    // of the ring of the micro-step order
  int64_t master = 0, exp_avg = 0, exp_avg_sq = 0;
  int64_t accumulators = 0, ring = 0;
  // What a reduction copies: from ranks that share no host memory, and to the device's.
  int64_t received = 0, received_on_device = 0;
  // Of the device, where gradients are packed that come down in buckets.
  int64_t packing = 0;
  int64_t gradient_staging = 0;  // host memory between the device and the other ranks
  // Of Muon: the memory to orthogonalise the largest matrix, and host memory between a device's
  // matrices and the other ranks.
  optimizer::NewtonSchulz::Room matrices = {};
  int64_t matrix_staging = 0;
};

struct Plan {
  Plan(const layout::Model& model, const layout::Layout& layout, const config::EngineConfig& config,
       const Machine& machine);

  using Space = memory::Space;
  Space front;         // of acquired parameters and the host's gradients
  Space published_in;  // else than in front, acquires bring them there
  // One, or with a part of the states on the host two, the device's first.
  std::vector<Side> sides;
  [[nodiscard]] size_t side_index(int64_t root) const {
    return root < kept_ ? 0 : sides.size() - 1;
  }
  [[nodiscard]] const Side& side_of(int64_t root) const { return sides[side_index(root)]; }
  // Some sums, masters and moments are in another memory than parameters and gradients.
  [[nodiscard]] bool offloaded() const { return front != sides.back().back; }
  // What an update on the host makes goes to the device at once.
  [[nodiscard]] bool uploads_updates() const { return offloaded() && published_in == front; }

  Home home;
  // The published parameters lie in a window, not in a private block.
  [[nodiscard]] bool windowed() const { return home == Home::shared || home == Home::replica; }
  // The rank has more of the published parameters than of states, and commit touches all of it.
  bool published_at_commit;
  // Charged to this rank. Windows that ranks share are larger: `shared_published`.
  int64_t published = 0, shared_published = 0;
  // Host memory between the device and the other ranks that acquires and publishing take; acquires
  // of quantised weights on the host, too.
  int64_t gather_staging = 0, publish_staging = 0;
  // Of copies on a device that the host updates: what a rank has updated goes to the others from
  // the host, in pieces.
  [[nodiscard]] bool publishes_pieces() const {
    return home == Home::replica && update_elements > 0 && publish_staging > 0;
  }
  // An offloaded update goes up in parts of so many elements, from slots in host memory, or (0)
  // from the masters.
  int64_t update_elements = 0, update_slots = 0, update_staging = 0;
  // What asynchronous saves copy to, where it is reserved.
  int64_t snapshots = 0;
  // With Muon, whose matrices have no second moment: where the second moment of the others' element
  // 0 would lie on its side, by root. Empty: as in the shard.
  std::vector<int64_t> second_moments;

  // Of one rank whose states are all on a device: the sums of squares there, by bucket, from which
  // a device that can decides about a step. 0: the host decides.
  int64_t sums = 0;
  static constexpr int64_t kDecision = 256;  // bytes of what follows from them
  static constexpr int64_t kPage = 4096;     // which its copy on the host has to itself, of two
  // Bytes there, and on the host.
  [[nodiscard]] int64_t decisions() const;
  [[nodiscard]] int64_t decision_copy() const { return sums > 0 ? 2 * kPage : 0; }

  // Of these, host memory that nobody touches in commit: memory::Touch.
  int64_t untouched = 0;

  [[nodiscard]] int64_t bytes_of(memory::Purpose purpose, Space space) const;
  [[nodiscard]] int64_t host_bytes() const;  // of all purposes
  [[nodiscard]] kernels::Format compute() const { return compute_; }
  [[nodiscard]] kernels::Format master_format() const { return master_format_; }
  // So much of `untouched` a root's weight is; piece: this rank's of a trainable one, or null.
  [[nodiscard]] int64_t touched_by(const layout::Model& model, int64_t root,
                                   const layout::Piece* piece) const;
  // What a rank keeps states of.
  [[nodiscard]] std::vector<layout::Piece> pieces(const layout::Model& model,
                                                  const layout::Layout& layout,
                                                  int32_t rank) const {
    return home == Home::copy ? layout.pieces_of_all(model) : layout.pieces_of_rank(model, rank);
  }

 private:
  int64_t kept_;  // parameters with a lower id are the first side's
  kernels::Format compute_, master_format_;
  void divide(const layout::Layout& layout, const config::EngineConfig& config);
  // second: elements that have a second moment.
  static void plan_states(Side& side, const config::OptimizerConfig& states, int64_t second);
  void plan_sums(Side& side, const layout::Layout& layout, const config::EngineConfig& config,
                 const comm::Shape& shape) const;
  // Elements of second moments on each side.
  std::vector<int64_t> place_second_moments(const layout::Model& model,
                                            const layout::Layout& layout, int32_t rank);
};

}  // namespace outrigger::engine
