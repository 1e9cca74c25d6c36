// SPDX-License-Identifier: Apache-2.0
// A GPU as the plugin's table has it: streams, events, copies, and what the calls count.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "c_api/include/outrigger_plugin.h"
#include "kernels/cuda/arguments.h"
#include "plugins/cuda/gpu.h"
#include "plugins/cuda/memory.h"
#include "plugins/cuda/pages.h"
#include "plugins/cuda/results.h"

namespace outrigger::cuda {

// The compiled kernels, loaded into the context.
class Kernels {
 public:
  explicit Kernels(Gpu& gpu);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  Function operator[](kernels::cuda::Kernel kernel) const {
    return functions_[static_cast<size_t>(kernel)];
  }

 private:
  Gpu& gpu_;
  Module module_ = nullptr;
  std::array<Function, kernels::cuda::kKernels> functions_{};
};

// The context is current in every call but the constructor, the destructor and gpu().
class Device {
 public:
  explicit Device(int32_t id);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] Gpu& gpu() { return gpu_; }
  [[nodiscard]] Memory& memory() { return memory_; }
  void set_value(const std::string& name, double value);
  [[nodiscard]] double value(const std::string& name) const;

  void* allocate(size_t bytes, uint64_t stream);
  void release(void* data, uint64_t stream);
  void pin(void* data, size_t bytes);
  void unpin(void* data) noexcept;

  void synchronize();
  [[nodiscard]] uint64_t create_stream();
  void destroy_stream(uint64_t stream) noexcept;
  void synchronize(uint64_t stream);
  [[nodiscard]] Event record(uint64_t stream);
  void synchronize(Event event);
  [[nodiscard]] bool is_done(Event event);
  void wait(uint64_t stream, Event event);
  void forget(Event event);  // to be used again

  void copy(void* to, const void* from, size_t bytes, int32_t direction, uint64_t stream);
  void zero(void* data, size_t bytes, uint64_t stream);

  // launches.cpp
  void convert(const otr_plugin_convert* list, int64_t count, uint64_t stream);
  void fold(const otr_plugin_fold& given, uint64_t stream);
  void update(const otr_plugin_update* list, int64_t count, otr_plugin_update_count* total,
              uint64_t stream);
  void product(const otr_plugin_product& given, uint64_t stream);
  void decide(const otr_plugin_decide& given, uint64_t stream);

 private:
  class Launching;
  struct Count {
    const char* name;
    std::atomic<int64_t> value{0};
  };
  void launch(kernels::cuda::Kernel kernel, int64_t blocks, void* arguments, Stream stream);
  // What a grid has to have, and what it may have.
  [[nodiscard]] int64_t grid_of(int64_t leaves, int64_t leaves_of_warp, int64_t of_processor) const;
  template <class List>
  int64_t spread(List& list) const;
  [[nodiscard]] std::string names() const;

  Gpu gpu_;
  // While the parts below are made, and given back.
  std::optional<Current> current_;
  Memory memory_;
  Kernels kernels_;
  Results results_;
  int least_priority_ = 0, greatest_priority_ = 0;
  std::atomic<int> priority_{0};
  std::mutex mutex_;
  std::set<Stream> streams_;         // guarded by mutex_, as the next two are
  std::vector<Event> unused_, all_;  // events
  std::multiset<void*> pinned_;
  Count allocations_{"allocations"}, stream_allocations_{"stream_allocations"},
      synchronizations_{"synchronizations"}, event_synchronizations_{"event_synchronizations"},
      unpinned_bytes_{"unpinned_bytes"}, bytes_to_device_{"bytes_to_device"},
      bytes_to_host_{"bytes_to_host"}, launches_{"kernels"};
  const std::array<Count*, 8> counts_;
};

}  // namespace outrigger::cuda
