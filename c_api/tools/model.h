// SPDX-License-Identifier: Apache-2.0
// What a configuration makes of a model, without allocating it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "machine.h"
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

// An engine that only declares.
class Model {
 public:
  // Throws Fault where the configuration is not legal for so many ranks.
  Model(const std::string& config, const std::vector<NamedShape>& shapes,
        const Placement& placement, const Start& start);

  // Of one rank: purposes, and the total last.
  [[nodiscard]] std::vector<otr_memory_entry> estimate(int32_t layout) const;
  // At the peak, in our layout: of training, or of a start if that is more.
  [[nodiscard]] int64_t host_bytes() const;
  // Of a start alone, on the first rank and on its host.
  struct Peaks {
    int64_t rank, host;
  };
  [[nodiscard]] Peaks start_peaks(int32_t way) const;
  [[nodiscard]] int64_t stage() const { return stage_; }

 private:
  template <typename Handle>
  using Owned = std::unique_ptr<Handle, void (*)(Handle*)>;

  [[nodiscard]] std::vector<otr_memory_entry> estimate(otr_estimate_options options) const;
  [[nodiscard]] otr_estimate_options options() const;

  Placement placement_;
  Start start_;
  int64_t stage_ = 0;
  Owned<otr_context> context_{nullptr, otr_context_destroy};
  Owned<otr_comm> comm_{nullptr, otr_comm_destroy};
  Owned<otr_engine> engine_{nullptr, otr_engine_destroy};
};

// A change of the configuration, as a JSON merge patch.
struct Change {
  std::string name;
  Json patch;
  Json config;         // the whole, changed
  int64_t host_bytes;  // that a host then needs
};

// Higher stages, then bfloat16, then bfloat16 master and states: those that fit into `available`
// bytes of a host, in this order. config: a JSON object.
[[nodiscard]] std::vector<Change> changes_that_fit(const Json& config,
                                                   const std::vector<NamedShape>& shapes,
                                                   const Placement& placement, const Start& start,
                                                   const Model& given, int64_t available);

}  // namespace outrigger::tools
