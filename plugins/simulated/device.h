// SPDX-License-Identifier: Apache-2.0
// A device made of threads: a stream is a thread, so is the copy engine of each direction. Work
// takes exactly the time that settings give it. It has the faults that real ones have: running out
// of memory, losing a piece of work, getting lost; copies of host memory that is not page-locked
// make the host wait. It counts what costs time, and work that races ends it.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "c_api/include/outrigger_plugin.h"
#include "plugins/simulated/memory.h"
#include "plugins/simulated/pages.h"
#include "plugins/simulated/races.h"
#include "plugins/simulated/stream.h"

namespace outrigger::simulated {

inline constexpr int32_t kDevices = 8;

// A point in a stream, and what is done by then.
struct Recorded {
  Event event;
  Clock clock;
};

class Device {
 public:
  // pages: those that it has locked; of a driver, those of all its devices.
  explicit Device(int32_t id, std::shared_ptr<Pages> pages = std::make_shared<Pages>());
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void set_value(const std::string& name, double value);
  [[nodiscard]] double value(const std::string& name) const;
  void memory_info(uint64_t& free_bytes, uint64_t& total) const;

  // stream OTR_PLUGIN_NO_STREAM: zero-filled, for all streams; else for that one, with bytes that
  // are no number.
  void* allocate(size_t bytes, uint64_t stream);
  void release(void* data, uint64_t stream);
  // Where the device finds this memory; fails for anything else.
  [[nodiscard]] std::byte* inside(const void* data, size_t bytes, const char* what) const;
  // Of live memory.
  [[nodiscard]] size_t allocated_bytes() const { return memory_.used_bytes(); }

  void pin(void* data, size_t bytes);
  void unpin(void* data);

  uint64_t create_stream();
  void destroy_stream(uint64_t stream);
  void synchronize();  // all streams
  void drain();        // likewise, of a lost device too
  void synchronize(uint64_t stream);
  [[nodiscard]] std::shared_ptr<Recorded> record(uint64_t stream);
  void synchronize(const Recorded& event);
  [[nodiscard]] bool is_done(const Recorded& event);
  void wait(uint64_t stream, std::shared_ptr<Recorded> event);

  // A kernel on a stream, which takes launch_latency and the time for the bytes that it touches:
  // addresses as the host knows them.
  void launch(uint64_t stream, const char* what, std::span<const Touch> touches,
              std::function<void()> work);
  void copy(void* to, const void* from, size_t bytes, int32_t direction, uint64_t stream);
  // A function of the host's in a stream's order, on the stream's thread; not of a lost device.
  void call(uint64_t stream, std::function<void()> function);

 private:
  struct Setting {
    const char* name;
    std::atomic<double> value{0};
  };
  struct Count {
    const char* name;
    std::atomic<int64_t> value{0};
  };
  [[nodiscard]] Queue& queue(uint64_t stream) const;  // mutex_ is held
  [[nodiscard]] std::string names() const;
  void give(uint64_t stream, const char* what, std::span<const Touch> touches, Queue::Work work);
  // Counts down to the fault that was asked for; throws the fault that there was.
  bool strikes();
  void require_alive() const;
  void lose(const std::string& why);
  // The default stream is busy for so long, or until end_delays.
  void delay(double seconds);
  void end_delays();
  [[nodiscard]] uint64_t delays_ended();

  int32_t id_;
  Memory memory_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Queue>> streams_;  // guarded by mutex_
  uint64_t next_stream_ = 3;
  Races races_;  // guarded by mutex_
  const std::shared_ptr<Pages> pages_;
  Queue to_device_, to_host_;
  Setting copy_bytes_per_second_{"copy_bytes_per_second"}, copy_latency_{"copy_latency"},
      launch_latency_{"launch_latency"}, kernel_bytes_per_second_{"kernel_bytes_per_second"},
      skip_kernels_{"skip_kernels"}, fail_allocation_{"fail_allocation"},
      fail_operation_{"fail_operation"}, fail_pin_{"fail_pin"};
  Count allocations_{"allocations"}, stream_allocations_{"stream_allocations"},
      synchronizations_{"synchronizations"}, event_synchronizations_{"event_synchronizations"},
      unpinned_bytes_{"unpinned_bytes"}, bytes_to_device_{"bytes_to_device"},
      bytes_to_host_{"bytes_to_host"}, kernels_{"kernels"};
  const std::array<Setting*, 8> settings_;
  const std::array<Count*, 8> counts_;
  std::mutex delays_;
  std::condition_variable delays_end_;
  uint64_t delays_ended_ = 0;  // how often; guarded by delays_
  std::atomic<bool> lost_{false};
  std::string why_lost_;  // guarded by mutex_
};

}  // namespace outrigger::simulated
