// SPDX-License-Identifier: Apache-2.0
// Whole parameters, states and gradients, in and out: first values (initial.cpp), checks, exports
// and piecewise initialisation (values.cpp), what a checkpoint had (restore.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/engine/committed.h"
#include "core/engine/health.h"
#include "core/engine/window.h"
#include "kernels/composed.h"
#include "kernels/update_part.h"

namespace outrigger::engine {

class Values {
 public:
  Values(Declared& declared, Committed& committed, Window& window, Health& health);

  // First values given at declaration, of which rank 0's count: nothing but hashes goes over the
  // ranks where they keep equal ones. Collective.
  void distribute_initial();
  // First values given after commit by every rank: each keeps its part of them, and nothing but
  // their hashes goes over the ranks where they are equal. Collective.
  void set_initial(const int64_t* ids, int64_t count, const otr_tensor* values);

  // OTR_VALUE_ of a whole parameter. Collective.
  void read(int64_t id, int32_t value, const otr_tensor& out);
  void write(int64_t id, int32_t value, const otr_tensor& source);
  // Of the elements whose states lie on this rank.
  void read_local(int64_t id, int32_t value, const otr_tensor& out);
  void write_local(int64_t id, int32_t value, const otr_tensor& source);

  // Of a checkpoint: a part of this rank's piece of a state, or of a frozen root, as planes of the
  // format in which it was kept; in another one here, to nearest. Then, of all ranks, for all of
  // them; the second after a barrier.
  void restore(const layout::Piece& part, checkpoint::Kept kept, kernels::Format format,
               std::span<const std::vector<std::byte>> planes);
  void end_restore();
  void refresh_all();

  // Before weights change: what changes them comes after what callers' streams were given, and
  // nothing is copied from them any more, by any rank that shares them. Collective.
  void settle(const char* label);
  // A step has published what was written locally.
  void note_published() { wrote_locally_ = false; }

 private:
  // Where this rank's piece of one value lies, in which format, what of a composed one lies beside,
  // and the factor that turns it into what the host sees.
  struct Location {
    kernels::Format format = kernels::Format::float32;
    device::Device* device = nullptr;
    double factor = 1;
    std::optional<layout::Piece> piece = std::nullopt;
    std::byte* data = nullptr;  // of the piece's first element
    device::Device* beside_device = nullptr;
    std::byte* beside = nullptr;
    Lease lease = {};
    [[nodiscard]] std::byte* at(int64_t element) const {  // of the parameter
      return kernels::advance(data, element - piece->first, format);
    }
    [[nodiscard]] std::byte* beside_at(int64_t element) const {
      return beside + kernels::beside_bytes_of(element - piece->first, format);
    }
  };
  // Throws OTR_E_ARGUMENT, OTR_E_NOT_FOUND.
  void require_value(const layout::Parameter& root, int32_t value) const;
  [[nodiscard]] Location location_of(const layout::Parameter& root, int32_t value, bool write);
  // The same with a composed format turned into plain float32 in `values`.
  [[nodiscard]] Location opened(Location location, memory::Block& values);
  void require_writable(int32_t value, const char* call) const;
  // Elements [first, first + count) of the parameter, as far as they are of this piece.
  [[nodiscard]] static std::optional<layout::Piece> overlap(
      const std::optional<layout::Piece>& piece, int64_t first, int64_t count);
  void write_piece(const Location& location, const layout::Piece& part, const float* values);
  void write_weight(const layout::Piece& part, const float* values);
  // Written roots' weights.
  void publish(std::span<const int64_t> roots);
  // From elements [first, first + count) of a root, float32, to all that this rank has of them:
  // the master and the published value.
  void store(int64_t root, int64_t first, int64_t count, const float* values);
  void store_published(int64_t root, int64_t first, int64_t count, const float* values);
  [[nodiscard]] tensor::View local_view(const layout::Parameter& parameter,
                                        const layout::Parameter& root, const otr_tensor& t) const;

  // initial.cpp
  struct First;
  struct Given;
  [[nodiscard]] int64_t beyond_held(const std::vector<First>& firsts) const;
  [[nodiscard]] static std::array<Given, 2> given_of(const std::vector<First>& firsts);
  [[nodiscard]] std::vector<bool> compare(const std::vector<First>& firsts,
                                          std::span<const Given> given);
  void take(const First& first, bool from_rank0, float* scratch);
  void send(const layout::Parameter& root, int64_t first, int64_t count, float* values);
  [[nodiscard]] const float* initial_part(const tensor::View& view, int64_t first, int64_t count,
                                          float* scratch);
  void read_initial(const tensor::View& view, int64_t first, int64_t count, float* values);
  [[nodiscard]] uint64_t hash_initial(const tensor::View& view, float* scratch);
  // The host need not hold a root's first value any more.
  void taken(int64_t root) { declared_.initial[static_cast<size_t>(root)].held = {}; }
  // The first write of a value of a root takes its part of the untouched memory.
  void touch(int64_t root, int32_t value);

  Declared& declared_;
  Committed& committed_;
  Window& window_;
  Health& health_;
  std::vector<uint8_t> touched_;  // by root, a bit for each value: see touch
  bool wrote_locally_ = false;    // a weight that replicas elsewhere do not have yet
};

}  // namespace outrigger::engine
