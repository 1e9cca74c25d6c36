// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/common/work.h"

namespace outrigger::simulated {

using plugins::fail;

namespace {

constexpr size_t kMemory = size_t{4} << 30;  // pages exist once they are written
constexpr double kHostBytesPerSecond = 8e9;  // about what a copy takes of a host's thread

double seconds_of(double bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? bytes / bytes_per_second : 0;
}

// Whether it was the one that is to fail.
bool counts_down(std::atomic<double>& left_until) {
  double left = left_until;
  while (left > 0 && !left_until.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

}  // namespace

Device::Device(int32_t id, std::shared_ptr<Pages> pages)
    : id_(id),
      memory_(kMemory),
      pages_(std::move(pages)),
      settings_{&copy_bytes_per_second_,   &copy_latency_, &launch_latency_,
                &kernel_bytes_per_second_, &skip_kernels_, &fail_allocation_,
                &fail_operation_,          &fail_pin_},
      counts_{&allocations_,    &stream_allocations_, &synchronizations_, &event_synchronizations_,
              &unpinned_bytes_, &bytes_to_device_,    &bytes_to_host_,    &kernels_} {
  streams_.emplace(0, std::make_shared<Queue>());
}

Device::~Device() { streams_.clear(); }

std::string Device::names() const {
  std::string text = "memory_bytes";
  for (const Setting* setting : settings_) text += std::string(", ") + setting->name;
  text += " and delay, and the counts";
  for (const Count* count : counts_) {
    text += std::string(count == counts_.front() ? " " : ", ") + count->name;
  }
  return text;
}

void Device::set_value(const std::string& name, double value) {
  const bool is_legal = value >= 0 && value <= 0x1p53;
  if (!is_legal) {
    fail(OTR_E_ARGUMENT, name + " = " + std::to_string(value) + "; legal is 0 to 2^53");
  }
  if (name == "memory_bytes") return memory_.set_limit(static_cast<size_t>(value));
  if (name == "delay") return value > 0 ? delay(value) : end_delays();
  for (Setting* setting : settings_) {
    if (name != setting->name) continue;
    const bool is_count = name.starts_with("fail_");
    setting->value = is_count ? static_cast<double>(static_cast<int64_t>(value)) : value;
    return;
  }
  fail(OTR_E_NOT_FOUND, "the simulated device has no \"" + name + "\" to set; there are " +
                            names() + ", which cannot be set");
}

void Device::delay(double seconds) {
  give(0, "a delay", {}, [this, seconds, ended = delays_ended()](Time begin) {
    const Time end = after(begin, seconds);
    std::unique_lock lock(delays_);
    const bool is_cut = delays_end_.wait_until(lock, end, [&] { return delays_ended_ != ended; });
    return is_cut ? std::max(begin, std::min(end, Time::clock::now())) : end;
  });
}

uint64_t Device::delays_ended() {
  const std::lock_guard lock(delays_);
  return delays_ended_;
}

void Device::end_delays() {
  {
    const std::lock_guard lock(delays_);
    ++delays_ended_;
  }
  delays_end_.notify_all();
}

double Device::value(const std::string& name) const {
  if (name == "memory_bytes") return static_cast<double>(memory_.total());
  for (const Setting* setting : settings_) {
    if (name == setting->name) return setting->value;
  }
  for (const Count* count : counts_) {
    if (name == count->name) return static_cast<double>(count->value);
  }
  fail(OTR_E_NOT_FOUND, "the simulated device has no \"" + name + "\"; there are " + names());
}

void Device::memory_info(uint64_t& free_bytes, uint64_t& total) const {
  free_bytes = memory_.free_bytes();
  total = memory_.total();
}

void Device::require_alive() const {
  if (!lost_) return;
  const std::lock_guard lock(mutex_);
  fail(OTR_E_DEVICE_FAULT, "simulated device " + std::to_string(id_) + " is lost: " + why_lost_);
}

void Device::lose(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!lost_) why_lost_ = why;
  lost_ = true;
}

bool Device::strikes() {
  if (counts_down(fail_operation_.value))
    lose("the operation that fail_operation named has failed");
  return lost_;
}

void* Device::allocate(size_t bytes, uint64_t stream) {
  require_alive();
  ++(stream == OTR_PLUGIN_NO_STREAM ? allocations_ : stream_allocations_).value;
  void* data = counts_down(fail_allocation_.value)
                   ? nullptr
                   : memory_.allocate(bytes, stream == OTR_PLUGIN_NO_STREAM ? 0 : 0xff);
  if (data == nullptr) {
    fail(OTR_E_OUT_OF_MEMORY,
         std::to_string(bytes) + " bytes are not to be had of simulated device " +
             std::to_string(id_) + ": " + std::to_string(memory_.free_bytes()) + " of " +
             std::to_string(memory_.total()) + " are free");
  }
  if (stream != OTR_PLUGIN_NO_STREAM) {
    const Touch touch{static_cast<std::byte*>(data), bytes, true};
    give(stream, "an allocation", {&touch, 1}, [](Time begin) { return begin; });
  }
  return data;
}

void Device::release(void* data, uint64_t stream) {
  const size_t bytes = memory_.bytes_of(data);
  if (bytes == 0) {
    fail(OTR_E_ARGUMENT,
         "this address is no live allocation of simulated device " + std::to_string(id_));
  }
  const auto end = [this, data, bytes] {
    {
      const std::lock_guard lock(mutex_);
      races_.forget(static_cast<std::byte*>(data), bytes);
    }
    memory_.release(data);
  };
  if (stream == OTR_PLUGIN_NO_STREAM) {
    ++synchronizations_.value;
    drain();
    return end();
  }
  const Touch touch{static_cast<std::byte*>(data), bytes, true};
  give(stream, "a release", {&touch, 1}, [end](Time begin) {
    end();
    return begin;
  });
}

void Device::pin(void* data, size_t bytes) {
  require_alive();
  pages_->lock(data, bytes, counts_down(fail_pin_.value));
}

void Device::unpin(void* data) {
  const size_t bytes = pages_->unlock(data);
  const std::lock_guard lock(mutex_);
  if (bytes > 0) races_.forget(static_cast<std::byte*>(data), bytes);
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

Queue& Device::queue(uint64_t stream) const {
  const auto found = streams_.find(stream <= 1 ? 0 : stream);
  if (found == streams_.end()) {
    fail(OTR_E_ARGUMENT, "stream " + std::to_string(stream) +
                             " does not exist on simulated device " + std::to_string(id_));
  }
  return *found->second;
}

uint64_t Device::create_stream() {
  auto made = std::make_shared<Queue>();
  const std::lock_guard lock(mutex_);
  streams_.emplace(next_stream_, std::move(made));
  return next_stream_++;
}

void Device::destroy_stream(uint64_t stream) {
  std::shared_ptr<Queue> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    if (stream <= 1 || found == streams_.end()) return;
    gone = std::move(found->second);
    streams_.erase(found);
  }
  gone->drain();
  const std::lock_guard lock(mutex_);
  races_.host_waited(races_.at(stream));
}

void Device::drain() {
  std::map<uint64_t, std::shared_ptr<Queue>> all;
  Clock given;
  {
    const std::lock_guard lock(mutex_);
    all = streams_;
    for (const auto& [stream, work] : all) join(given, races_.at(stream));
  }
  for (auto& [stream, work] : all) work->drain();
  const std::lock_guard lock(mutex_);
  races_.host_waited(given);
}

void Device::synchronize() {
  ++synchronizations_.value;
  drain();
  require_alive();
}

void Device::synchronize(uint64_t stream) {
  ++synchronizations_.value;
  std::shared_ptr<Queue> work;
  Clock given;
  {
    const std::lock_guard lock(mutex_);
    static_cast<void>(queue(stream));
    work = streams_.at(stream <= 1 ? 0 : stream);
    given = races_.at(stream <= 1 ? 0 : stream);
  }
  work->drain();
  {
    const std::lock_guard lock(mutex_);
    races_.host_waited(given);
  }
  require_alive();
}

std::shared_ptr<Recorded> Device::record(uint64_t stream) {
  auto event = std::make_shared<Recorded>();
  const std::lock_guard lock(mutex_);
  event->clock = races_.at(stream <= 1 ? 0 : stream);
  queue(stream).give([event](Time begin) {
    event->event.set(begin);
    return begin;
  });
  return event;
}

void Device::synchronize(const Recorded& event) {
  ++event_synchronizations_.value;
  event.event.wait();
  {
    const std::lock_guard lock(mutex_);
    races_.host_waited(event.clock);
  }
  require_alive();
}

bool Device::is_done(const Recorded& event) {
  if (!event.event.is_set()) return false;
  {
    const std::lock_guard lock(mutex_);
    races_.host_waited(event.clock);
  }
  require_alive();
  return true;
}

void Device::wait(uint64_t stream, std::shared_ptr<Recorded> event) {
  const std::lock_guard lock(mutex_);
  races_.stream_waited(stream <= 1 ? 0 : stream, event->clock);
  queue(stream).give(
      [event = std::move(event)](Time begin) { return std::max(begin, event->event.wait()); });
}

void Device::give(uint64_t stream, const char* what, std::span<const Touch> touches,
                  Queue::Work work) {
  std::string race;
  {
    const std::lock_guard lock(mutex_);
    Queue& to = queue(stream);
    race = races_.give(stream <= 1 ? 0 : stream, what, touches);
    if (race.empty()) to.give(std::move(work));
  }
  if (!race.empty()) lose(race);
}

void Device::launch(uint64_t stream, const char* what, std::span<const Touch> touches,
                    std::function<void()> work) {
  require_alive();
  ++kernels_.value;
  double bytes = 0;
  for (const Touch& touch : touches) bytes += static_cast<double>(touch.bytes);
  give(stream, what, touches, [this, bytes, work = std::move(work)](Time begin) {
    const double seconds =
        launch_latency_.value + seconds_of(bytes, kernel_bytes_per_second_.value);
    const bool skip = skip_kernels_.value != 0;
    const Time end = after(begin, seconds);
    const double own = skip || seconds == 0 ? 0 : std::min(seconds, bytes / kHostBytesPerSecond);
    end_at(end, own, [&] {
      if (!strikes() && !skip) work();
    });
    return end;
  });
}

void Device::call(uint64_t stream, std::function<void()> function) {
  require_alive();
  give(stream, "a function", {}, [this, function = std::move(function)](Time begin) {
    if (!lost_) function();
    return begin;
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
  const std::array touches{Touch{static_cast<const std::byte*>(to), bytes, true},
                           Touch{static_cast<const std::byte*>(from), bytes, false}};
  if (on_device) {
    launch(stream, "a copy", touches, [=] { std::memmove(target, source, bytes); });
    return;
  }
  require_alive();
  (from_host ? bytes_to_device_ : bytes_to_host_).value += static_cast<int64_t>(bytes);
  const bool pinned = pages_->has(from_host ? from : to, bytes);
  // The stream waits until the copy engine is done.
  Queue& engine = from_host ? to_device_ : to_host_;
  give(stream, from_host ? "a copy from the host" : "a copy to the host", touches,
       [this, &engine, target, source, bytes](Time begin) {
         Event done;
         engine.give(
             [this, target, source, bytes, &done](Time start) {
               const auto size = static_cast<double>(bytes);
               const double seconds =
                   copy_latency_.value + seconds_of(size, copy_bytes_per_second_.value);
               const Time end = after(start, seconds);
               end_at(end, std::min(seconds, size / kHostBytesPerSecond), [&] {
                 if (!strikes()) std::memcpy(target, source, bytes);
               });
               done.set(end);
               return end;
             },
             begin);
         return done.wait();
       });
  if (pinned) return;
  // A driver reads and writes other memory by way of its own, while the host waits.
  unpinned_bytes_.value += static_cast<int64_t>(bytes);
  synchronize(*record(stream));
  --event_synchronizations_.value;
}

}  // namespace outrigger::simulated
