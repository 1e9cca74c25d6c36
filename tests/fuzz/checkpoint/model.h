// SPDX-License-Identifier: Apache-2.0
// The engine whose checkpoints are taken apart, and which loads what becomes of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/engine/engine.h"
#include "outrigger.h"

namespace otr_fuzz_checkpoint {

using Values = std::map<std::string, std::vector<float>>;  // by "name/value"

// Over a communicator of one thread; what fails throws.
class Model {
 public:
  enum class Kind : uint8_t { composed, plain };
  // first: a factor of all first values.
  Model(otr_comm* comm, Kind kind, float first);
  ~Model() { otr_engine_destroy(engine_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void step();
  [[nodiscard]] outrigger::engine::Engine& engine() const;
  [[nodiscard]] Values values() const;

 private:
  otr_engine* engine_ = nullptr;
};

// Of one rank, in this process to its end.
[[nodiscard]] otr_comm* self_comm();

inline constexpr int64_t kParameters = 4;  // the third is frozen, the fourth an alias of the first
inline constexpr const char* kNames[kParameters] = {"p", "q", "f", "t"};

void need(int32_t status);  // throws

}  // namespace otr_fuzz_checkpoint
