// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/device.h"

#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace outrigger::simulated {
namespace {

constexpr size_t kMemory = size_t{4} << 30;  // pages exist once they are written

void take(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Whether it was the one that is to fail.
bool counts_down(std::atomic<int64_t>& left_until) {
  int64_t left = left_until;
  while (left > 0 && !left_until.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

}  // namespace

void fail(int32_t status, std::string text) { throw Failure{status, std::move(text)}; }

Device::Device(int32_t id) : id_(id), memory_(kMemory) {
  streams_.emplace(0, std::make_shared<Queue>());
}

Device::~Device() { streams_.clear(); }

void Device::set_value(const std::string& name, double value) {
  const bool is_legal = value >= 0 && value <= 0x1p53;
  if (!is_legal) {
    fail(OTR_E_ARGUMENT, name + " = " + std::to_string(value) + "; legal is 0 to 2^53");
  }
  if (name == "copy_bytes_per_second") {
    copy_bytes_per_second_ = value;
  } else if (name == "copy_latency") {
    copy_latency_ = value;
  } else if (name == "launch_latency") {
    launch_latency_ = value;
  } else if (name == "memory_bytes") {
    memory_.set_limit(static_cast<size_t>(value));
  } else if (name == "fail_allocation") {
    fail_allocation_ = static_cast<int64_t>(value);
  } else if (name == "fail_operation") {
    fail_operation_ = static_cast<int64_t>(value);
  } else if (name == "fail_pin") {
    fail_pin_ = static_cast<int64_t>(value);
  } else {
    fail(OTR_E_NOT_FOUND,
         "the simulated device has no \"" + name +
             "\"; there are copy_bytes_per_second, copy_latency, launch_latency, memory_bytes, "
             "fail_allocation, fail_operation and fail_pin");
  }
}

void Device::memory_info(uint64_t& free_bytes, uint64_t& total) const {
  free_bytes = memory_.free_bytes();
  total = memory_.total();
}

void Device::require_alive() const {
  if (lost_) {
    fail(OTR_E_DEVICE_FAULT, "simulated device " + std::to_string(id_) +
                                 " is lost: the operation that fail_operation named has failed");
  }
}

bool Device::strikes() {
  if (counts_down(fail_operation_)) lost_ = true;
  return lost_;
}

void* Device::allocate(size_t bytes) {
  require_alive();
  void* data = counts_down(fail_allocation_) ? nullptr : memory_.allocate(bytes);
  if (data == nullptr) {
    fail(OTR_E_OUT_OF_MEMORY,
         std::to_string(bytes) + " bytes are not to be had of simulated device " +
             std::to_string(id_) + ": " + std::to_string(memory_.free_bytes()) + " of " +
             std::to_string(memory_.total()) + " are free");
  }
  return data;
}

void Device::release(void* data) {
  drain();
  if (!memory_.release(data)) {
    fail(OTR_E_ARGUMENT,
         "this address is no live allocation of simulated device " + std::to_string(id_));
  }
}

void Device::pin(void* data, size_t bytes) {
  require_alive();
  auto* const begin = static_cast<std::byte*>(data);
  const std::lock_guard lock(mutex_);
  const auto next = pinned_.lower_bound(begin + bytes);
  if (next != pinned_.begin() && std::prev(next)->first + std::prev(next)->second > begin) {
    fail(OTR_E_ARGUMENT,
         "a part of these " + std::to_string(bytes) + " bytes is page-locked already");
  }
  const bool refused = counts_down(fail_pin_);
  if (refused || mlock(data, bytes) != 0) {
    const int reason = refused ? ENOMEM : errno;
    fail(OTR_E_OUT_OF_MEMORY, std::to_string(bytes) +
                                  " bytes: " + std::generic_category().message(reason) +
                                  "; the limit is RLIMIT_MEMLOCK (ulimit -l)");
  }
  pinned_.emplace(begin, bytes);
}

void Device::unpin(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(static_cast<std::byte*>(data));
  if (found == pinned_.end()) return;
  munlock(found->first, found->second);
  pinned_.erase(found);
}

std::byte* Device::inside(const void* data, size_t bytes, const char* what) const {
  if (bytes == 0) return nullptr;
  std::byte* at = memory_.inside(data, bytes);
  if (at == nullptr) {
    fail(OTR_E_ARGUMENT, std::string(what) + ": " + std::to_string(bytes) +
                             " bytes there are not in one allocation of simulated device " +
                             std::to_string(id_));
  }
  return at;
}

std::shared_ptr<Queue> Device::queue(uint64_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream <= 1 ? 0 : stream);
  if (found == streams_.end()) {
    fail(OTR_E_ARGUMENT, "stream " + std::to_string(stream) +
                             " does not exist on simulated device " + std::to_string(id_));
  }
  return found->second;
}

uint64_t Device::create_stream() {
  auto made = std::make_shared<Queue>();
  const std::lock_guard lock(mutex_);
  streams_.emplace(next_stream_, std::move(made));
  return next_stream_++;
}

void Device::destroy_stream(uint64_t stream) {
  std::shared_ptr<Queue> gone;
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (stream <= 1 || found == streams_.end()) return;
  gone = std::move(found->second);
  streams_.erase(found);
}

void Device::drain() {
  std::map<uint64_t, std::shared_ptr<Queue>> all;
  {
    const std::lock_guard lock(mutex_);
    all = streams_;
  }
  for (auto& [stream, work] : all) work->drain();
}

void Device::synchronize() {
  drain();
  require_alive();
}

void Device::synchronize(uint64_t stream) {
  queue(stream)->drain();
  require_alive();
}

std::shared_ptr<Event> Device::record(uint64_t stream) {
  auto event = std::make_shared<Event>();
  queue(stream)->give([event] { event->set(); });
  return event;
}

void Device::synchronize(const Event& event) const {
  event.wait();
  require_alive();
}

void Device::wait(uint64_t stream, std::shared_ptr<Event> event) {
  queue(stream)->give([event = std::move(event)] { event->wait(); });
}

void Device::launch(uint64_t stream, std::function<void()> work) {
  require_alive();
  queue(stream)->give([this, work = std::move(work)] {
    take(launch_latency_);
    if (!strikes()) work();
  });
}

void Device::copy(void* to, const void* from, size_t bytes, int32_t direction, uint64_t stream) {
  const bool on_device = direction == OTR_PLUGIN_ON_DEVICE;
  const bool from_host = direction == OTR_PLUGIN_HOST_TO_DEVICE;
  const bool to_host = direction == OTR_PLUGIN_DEVICE_TO_HOST;
  if (!on_device && !from_host && !to_host) {
    fail(OTR_E_ARGUMENT, "copy direction " + std::to_string(direction) + " is none of the three");
  }
  void* target = to_host ? to : inside(to, bytes, "the copy's destination");
  const void* source = from_host ? from : inside(from, bytes, "the copy's source");
  if (bytes == 0) return;
  if (on_device) {
    launch(stream, [=] { std::memmove(target, source, bytes); });
    return;
  }
  require_alive();
  // The stream waits until the copy engine is done.
  Queue& engine = from_host ? to_device_ : to_host_;
  queue(stream)->give([this, &engine, target, source, bytes] {
    const auto done = std::make_shared<Event>();
    engine.give([this, target, source, bytes, done] {
      const double speed = copy_bytes_per_second_;
      take(copy_latency_ + (speed > 0 ? static_cast<double>(bytes) / speed : 0));
      if (!strikes()) std::memcpy(target, source, bytes);
      done->set();
    });
    done->wait();
  });
}

}  // namespace outrigger::simulated
