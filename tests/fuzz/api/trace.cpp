// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/trace.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace otr_fuzz {
namespace {

std::mutex traces_mutex;
std::vector<const Trace*> traces;

// One thread for all programs: starting one for each would cost more than most programs.
struct Watchdog {
  std::mutex mutex;
  std::condition_variable changed;
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();

  Watchdog() {
    std::thread([this] { watch(); }).detach();
  }
  void watch() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait_for(lock, std::chrono::seconds(1));
      if (std::chrono::steady_clock::now() > end) broken("the program hangs");
    }
  }
};

Watchdog& watchdog() {
  static auto* only = new Watchdog;  // outlives every program: never destroyed
  return *only;
}

}  // namespace

Trace::Trace(int32_t rank) : rank_(rank) {
  const std::lock_guard lock(traces_mutex);
  traces.push_back(this);
}

Trace::~Trace() {
  const std::lock_guard lock(traces_mutex);
  std::erase(traces, this);
}

size_t Trace::begin(std::string line) {
  const std::lock_guard lock(mutex_);
  lines_.push_back(std::move(line));
  return lines_.size() - 1;
}

void Trace::end(size_t line, const char* status) {
  const std::lock_guard lock(mutex_);
  lines_[line].append(" = ").append(status);
}

void Trace::print() const {
  const std::lock_guard lock(mutex_);
  for (const std::string& line : lines_) std::fprintf(stderr, "rank %d: %s\n", rank_, line.c_str());
}

void broken(const std::string& property) {
  const std::lock_guard lock(traces_mutex);
  for (const Trace* trace : traces) trace->print();
  std::fprintf(stderr, "broken: %s\n", property.c_str());
  std::abort();
}

Deadline::Deadline(double seconds) {
  Watchdog& dog = watchdog();
  const std::lock_guard lock(dog.mutex);
  dog.end = std::chrono::steady_clock::now() +
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                std::chrono::duration<double>(seconds));
}

Deadline::~Deadline() {
  Watchdog& dog = watchdog();
  const std::lock_guard lock(dog.mutex);
  dog.end = std::chrono::steady_clock::time_point::max();
}

}  // namespace otr_fuzz
