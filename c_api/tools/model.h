// SPDX-License-Identifier: Apache-2.0
// What a configuration makes of a model, without allocating it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "outrigger.h"
#include "shapes.h"

namespace outrigger::tools {

// Where the ranks are.
struct Placement {
  int world = 1, hosts = 1, ranks_per_host = 1;
};

// How the first values come, and what a rank holds of them until they are taken.
struct Start {
  int32_t way = OTR_START_SHARED_OUT;
  int32_t element_bytes = 4;
};

struct Setting {
  Placement placement;
  Start start;
  bool on_device = false;  // each rank has one, with parameters and gradients
};

// Of one host and one device, which is 0 where there is none: what is needed, or what there is.
struct Bytes {
  int64_t host = 0, device = 0;
  [[nodiscard]] bool fit_in(const Bytes& room) const {
    return host <= room.host && device <= room.device;
  }
};

// Of one rank: purposes, and the total last.
struct Entries {
  std::vector<otr_memory_entry> host, device;
};

// An engine that only declares.
class Model {
 public:
  // Throws Fault where the configuration is not legal for so many ranks, or on a device.
  Model(const std::string& config, const std::vector<NamedShape>& shapes, const Setting& setting);

  [[nodiscard]] Entries estimate(int32_t layout) const;
  // At the peak, in our layout: of training, or of a start if that is more.
  [[nodiscard]] Bytes needed() const;
  // Of a start alone: on the first rank, on its host, and on its device.
  struct Peaks {
    int64_t rank, host, device;
  };
  [[nodiscard]] Peaks start_peaks(int32_t way) const;
  [[nodiscard]] int64_t stage() const { return stage_; }
  [[nodiscard]] bool offloads() const { return offloads_; }
  [[nodiscard]] bool offloads_parameters() const { return offloads_parameters_; }
  // Elements of the parameters that are counted as acquired at a time.
  [[nodiscard]] int64_t acquired() const { return acquired_; }

 private:
  template <typename Handle>
  using Owned = std::unique_ptr<Handle, void (*)(Handle*)>;

  [[nodiscard]] Entries estimate(otr_estimate_options options) const;
  [[nodiscard]] otr_estimate_options options() const;

  Setting setting_;
  int64_t stage_ = 0;
  bool offloads_ = false, offloads_parameters_ = false;
  int64_t acquired_ = 0;
  Owned<otr_context> context_{nullptr, otr_context_destroy};
  Owned<otr_comm> comm_{nullptr, otr_comm_destroy};
  Owned<otr_engine> engine_{nullptr, otr_engine_destroy};
};

}  // namespace outrigger::tools
