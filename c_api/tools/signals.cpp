// SPDX-License-Identifier: Apache-2.0
#include "signals.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <stdexcept>

namespace outrigger::tools {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor_ < 0) throw std::runtime_error("the system gives no signal descriptor");
}

Signals::~Signals() { close(descriptor_); }

std::optional<signalfd_siginfo> Signals::next() const {
  signalfd_siginfo info{};
  if (read(descriptor_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return {};
  return info;
}

int Signals::wait_for_end(double seconds) const {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    while (const std::optional<signalfd_siginfo> info = next()) {
      if (info->ssi_signo != SIGCHLD) return static_cast<int>(info->ssi_signo);
    }
    const double left = seconds - Seconds(std::chrono::steady_clock::now() - begin).count();
    if (left <= 0) return 0;
    pollfd descriptor{descriptor_, POLLIN, 0};
    poll(&descriptor, 1, static_cast<int>(std::min(1000 * left + 1, 1e6)));
  }
}

}  // namespace outrigger::tools
