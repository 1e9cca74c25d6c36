// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is put together without an engine, from shards or from what another program
// kept: one file, whose values come in runs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checksums.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/planes.h"
#include "core/checkpoint/safetensors.h"
#include "core/tensor/tensor.h"

namespace outrigger::checkpoint {

struct AssemblyOptions {
  // What weights and moments are kept as; nothing: no such moment.
  kernels::Format weights = kernels::Format::float32;
  std::optional<kernels::Format> exp_avg, exp_avg_sq;
  std::optional<int64_t> applied_steps;  // nothing: not known, and only weights can be loaded
  bool replace = false;
  // What weights are seen as, and frozen ones kept; nothing: as they are kept, the upper half of
  // split ones.
  std::optional<kernels::Format> published = {};
  std::string progress = {};  // JSON; empty: one that counts updates alone
  // Values come as parameters were added, each with its moments: the file may go past the system's
  // cache.
  bool in_order = false;
};

struct AssembledParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool trainable = true;
  std::string alias_of = {};  // an earlier one's name; empty: none
  std::string group = "default";
  bool exp_avg = true, exp_avg_sq = true;  // of the moments that there are: whether it has them
  std::optional<int64_t> updates = {};     // nothing: applied_steps
};

// Any thread; one call at a time. Holds the folder's lock. Without finish() nothing stays.
class Assembly {
 public:
  // Throws as a save does: OTR_E_STATE where another process writes there, OTR_E_DUPLICATE.
  Assembly(Files& files, const std::string& directory, std::string tag, AssemblyOptions options);
  ~Assembly();

  // Before the first write. Throws OTR_E_DUPLICATE, OTR_E_NOT_FOUND, OTR_E_SHAPE, OTR_E_ARGUMENT.
  void add(AssembledParameter parameter);
  void add_part(const std::string& name, std::vector<std::byte> bytes);
  // Elements from first on, as many as there are in `values`, in row-major order; master: the
  // weight, of a frozen parameter too. Runs come in any order, each element once.
  void write(const std::string& name, Kept kept, int64_t first, const tensor::View& values);
  // All elements as they are stored, whatever their format.
  void write_stored(const std::string& name, Kept kept, const Run& values);
  // Throws OTR_E_STATE unless all elements came; then, or after OTR_E_IO, it cannot go on.
  void finish();
  [[nodiscard]] Lock& lock() { return lock_; }  // of the folder

 private:
  enum class Stage : uint8_t { declaring, writing, ended };
  struct Tensor;  // of the file

  void require(Stage last, const char* what) const;
  void begin();
  void write_part(const std::string& name, std::span<const std::byte> bytes);
  // The first one of the value's planes.
  [[nodiscard]] size_t place_of(const std::string& name, Kept kept);
  void put(size_t place, int64_t offset, std::span<const std::byte> bytes);
  void require_writing();
  [[nodiscard]] std::string progress() const;
  [[nodiscard]] Index index();

  const std::string tag_;
  const AssemblyOptions options_;
  std::mutex mutex_;
  Lock lock_;
  std::optional<Staging> staging_;
  Stage stage_ = Stage::declaring;
  Manifest manifest_;
  std::map<std::string, int64_t, std::less<>> numbers_;  // of parameters, by name
  std::map<std::string, std::vector<std::byte>, std::less<>> parts_;
  std::vector<AssembledParameter> declared_;
  std::vector<Tensor> tensors_;                        // in the file's order
  std::map<std::pair<int64_t, Kept>, size_t> places_;  // in tensors_
  std::optional<Writer> writer_;
  std::vector<std::byte> scratch_;
};

}  // namespace outrigger::checkpoint
