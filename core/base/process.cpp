// SPDX-License-Identifier: Apache-2.0
#include "core/base/process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace outrigger {
namespace {

using ProcessWord = std::atomic<pid_t>;

// A word that the kernel sets to zero in a forked child; nullptr where it cannot (before
// Linux 4.14). Never given back: it serves all objects until the process ends.
ProcessWord* make_word() {
  void* page = mmap(nullptr, sizeof(ProcessWord), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, sizeof(ProcessWord), MADV_WIPEONFORK) == 0)
    return static_cast<ProcessWord*>(page);
  munmap(page, sizeof(ProcessWord));
  return nullptr;
}

}  // namespace

pid_t current_process() {
  static ProcessWord* const word = make_word();
  if (word == nullptr) return getpid();
  pid_t process = word->load(std::memory_order_relaxed);
  if (process == 0) [[unlikely]] {
    process = getpid();
    word->store(process, std::memory_order_relaxed);
  }
  return process;
}

std::string host_name() {
  std::array<char, 65> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "an unknown host";
  return name.data();
}

}  // namespace outrigger
