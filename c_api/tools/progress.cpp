// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "text.h"

namespace outrigger::tools {
namespace {

constexpr std::chrono::seconds kFirst{2}, kNext{5};

// What this process has read by system calls; 0 where the system does not tell.
int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  while (file >> name >> bytes) {
    if (name == "rchar:") return bytes;
  }
  return 0;
}

}  // namespace

Progress::Progress(const char* command, int64_t total)
    : command_(command), total_(total), before_(bytes_read()), thread_([this] {
        const auto begin = std::chrono::steady_clock::now();
        std::unique_lock lock(mutex_);
        for (auto pause = kFirst; !over_.wait_for(lock, pause, [this] { return is_over_; });
             pause = kNext) {
          tell(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
      }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void Progress::tell(double seconds) const {
  const int64_t read = bytes_read() - before_;
  if (total_ > 0) {
    say("outrigger {}: {:.1f} of {:.1f} GB read, {:.0f} s\n", command_,
        static_cast<double>(std::min(read, total_)) * 1e-9, static_cast<double>(total_) * 1e-9,
        seconds);
  } else {
    say("outrigger {}: {:.1f} GB read, {:.0f} s\n", command_, static_cast<double>(read) * 1e-9,
        seconds);
  }
}

}  // namespace outrigger::tools
