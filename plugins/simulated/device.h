// SPDX-License-Identifier: Apache-2.0
// A device made of threads: a stream is a thread, so is the copy engine of each direction. It has
// the faults that real ones have: running out of memory, losing a piece of work, getting lost.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "c_api/include/outrigger_plugin.h"
#include "plugins/simulated/memory.h"
#include "plugins/simulated/stream.h"

namespace outrigger::simulated {

inline constexpr int32_t kDevices = 8;

// What a table function throws: an OTR_E_ code and a text.
struct Failure {
  int32_t status;
  std::string text;
};
[[noreturn]] void fail(int32_t status, std::string text);

class Device {
 public:
  explicit Device(int32_t id);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void set_value(const std::string& name, double value);
  void memory_info(uint64_t& free_bytes, uint64_t& total) const;

  void* allocate(size_t bytes);
  void release(void* data);
  // Where the device finds this memory; fails for anything else.
  [[nodiscard]] std::byte* inside(const void* data, size_t bytes, const char* what) const;

  // Locks the pages, as a driver does; a range that is locked already is refused.
  void pin(void* data, size_t bytes);
  void unpin(void* data);

  uint64_t create_stream();
  void destroy_stream(uint64_t stream);
  void synchronize();  // all streams
  void synchronize(uint64_t stream);
  [[nodiscard]] std::shared_ptr<Event> record(uint64_t stream);
  void synchronize(const Event& event) const;
  void wait(uint64_t stream, std::shared_ptr<Event> event);

  // Work on a stream that takes launch_latency.
  void launch(uint64_t stream, std::function<void()> work);
  void copy(void* to, const void* from, size_t bytes, int32_t direction, uint64_t stream);

 private:
  [[nodiscard]] std::shared_ptr<Queue> queue(uint64_t stream) const;
  void drain();
  // Counts down to the fault that was asked for; throws the fault that there was.
  bool strikes();
  void require_alive() const;

  int32_t id_;
  Memory memory_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Queue>> streams_;  // guarded by mutex_
  uint64_t next_stream_ = 3;
  Queue to_device_, to_host_;
  std::atomic<double> copy_bytes_per_second_{0}, copy_latency_{0}, launch_latency_{0};
  std::map<std::byte*, size_t> pinned_;  // guarded by mutex_
  std::atomic<int64_t> fail_allocation_{0}, fail_operation_{0}, fail_pin_{0};
  std::atomic<bool> lost_{false};
};

}  // namespace outrigger::simulated
