// SPDX-License-Identifier: Apache-2.0
#include "core/comm/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace outrigger::comm {

// Not FUTEX_PRIVATE_FLAG: the word may lie in memory shared between processes.
static long futex(std::atomic<uint32_t>& word, int operation, uint32_t value,
                  const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr,
                 0);
}

Clock::time_point deadline_in(double seconds) {
  constexpr double kForever = 1e9;  // 31 years
  if (seconds >= kForever) return Clock::time_point::max();
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void ring(Bell& bell) {
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  futex(bell.rings, FUTEX_WAKE, INT_MAX, nullptr);
}

bool sleep_on(Bell& bell, uint32_t seen, Clock::duration at_most) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(at_most).count();
  if (ns <= 0) return false;
  const timespec timeout{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  // EAGAIN, EINTR, ETIMEDOUT: the caller looks again in its own time.
  return futex(bell.rings, FUTEX_WAIT, seen, &timeout) == 0;
}

Clock::duration choose_spin(int32_t wanted, int32_t ranks, int32_t cores) {
  constexpr std::chrono::microseconds kMost{200};  // a few times what a sleep and a wake cost
  if (wanted >= 0) return std::chrono::microseconds(wanted);
  return ranks <= cores ? kMost : std::chrono::microseconds(0);
}

}  // namespace outrigger::comm
