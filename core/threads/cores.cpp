// SPDX-License-Identifier: Apache-2.0
#include "core/threads/cores.h"

#include <pthread.h>
#include <sched.h>

#include <cstdlib>
#include <string_view>

namespace outrigger {

bool has_cores_of_its_own() {
  const char* bound = std::getenv("OTR_CORES_BOUND");
  return bound != nullptr && std::string_view(bound) == "1";
}

std::vector<int> cores_of_workers(int32_t workers) {
  cpu_set_t set;
  if (!has_cores_of_its_own() || sched_getaffinity(0, sizeof set, &set) != 0 ||
      CPU_COUNT(&set) != workers) {
    return {};
  }
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void bind_thread(int core) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
}

}  // namespace outrigger
