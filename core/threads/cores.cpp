// SPDX-License-Identifier: Apache-2.0
#include "core/threads/cores.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace outrigger {

std::vector<cpu_set_t> affinity_of(pid_t thread) {
  constexpr size_t kMostCores = size_t{1} << 20;
  for (size_t cores = CPU_SETSIZE; cores <= kMostCores; cores *= 2) {  // a machine may have more
    std::vector<cpu_set_t> set(cores / CPU_SETSIZE);
    if (sched_getaffinity(thread, set.size() * sizeof(cpu_set_t), set.data()) == 0) return set;
  }
  return {};
}

int32_t usable_cores() {
  const std::vector<cpu_set_t> set = affinity_of(0);
  return set.empty() ? online_cores() : CPU_COUNT_S(set.size() * sizeof(cpu_set_t), set.data());
}

int32_t online_cores() { return std::max(1, static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN))); }

bool has_cores_of_its_own() {
  const char* bound = std::getenv("OTR_CORES_BOUND");
  return bound != nullptr && std::string_view(bound) == "1";
}

void WorkerCores::follow_caller(std::span<std::thread> threads) noexcept {
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || here == home_) return;
  home_ = here;
  cpu_set_t free;
  if (sched_getaffinity(0, sizeof free, &free) != 0 || !CPU_ISSET(here, &free)) return;
  CPU_CLR(here, &free);
  const auto cores = static_cast<size_t>(CPU_COUNT(&free));
  if (cores < threads.size()) return;
  const bool one_each = cores == threads.size() && has_cores_of_its_own();
  int core = -1;
  for (std::thread& thread : threads) {
    cpu_set_t set = free;
    if (one_each) {
      do ++core;
      while (!CPU_ISSET(core, &free));
      CPU_ZERO(&set);
      CPU_SET(core, &set);
    }
    static_cast<void>(pthread_setaffinity_np(thread.native_handle(), sizeof set, &set));
  }
}

}  // namespace outrigger
