// SPDX-License-Identifier: Apache-2.0
// Which cores are this process's, and which of them its workers keep to.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace outrigger {

// That a thread may run on, or a process's main one; 0: the calling thread's. Empty: not told.
[[nodiscard]] std::vector<cpu_set_t> affinity_of(pid_t thread);
[[nodiscard]] int32_t usable_cores();  // of the calling thread, at least 1
[[nodiscard]] int32_t online_cores();  // of this host

// A launcher has bound this process to cores that no other rank uses, and says so
// (OTR_CORES_BOUND=1).
[[nodiscard]] bool has_cores_of_its_own();

// Keeps a pool's threads off the core of whoever calls them: woken by it they often wait there
// until it is done, and a step of a few milliseconds runs on one core. Where the process has cores
// of its own, as many as the pool has workers, each thread has one.
class WorkerCores {
 public:
  // On the caller's thread, before it wakes the others. Does something only when the caller has
  // moved, and where there are enough cores; whether the system allows it does not matter.
  void follow_caller(std::span<std::thread> threads) noexcept;

 private:
  int home_ = -1;  // the caller's core
};

}  // namespace outrigger
