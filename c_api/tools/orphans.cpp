// SPDX-License-Identifier: Apache-2.0
#include "orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

namespace outrigger::tools {
namespace {

struct Status {
  pid_t parent = -1;
  bool running = false;
};

// "number (name) state parent …"; the name may hold anything, so the last bracket counts.
Status status_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos || end + 4 >= line.size()) return {};  // it has just gone
  Status status;
  std::from_chars(line.data() + end + 4, line.data() + line.size(), status.parent);
  status.running = line[end + 2] != 'Z' && line[end + 2] != 'X';
  return status;
}

}  // namespace

Orphans::Orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void Orphans::reap(const std::function<bool(pid_t)>& is_worker) const {
  for (int ended = 0; ended < 10000; ++ended) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (is_worker(info.si_pid)) return;  // the next look takes it first, then comes back here
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

std::vector<pid_t> Orphans::running(const std::function<bool(pid_t)>& is_worker) const {
  std::vector<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    pid_t pid = -1;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (number.ec != std::errc() || number.ptr != name.data() + name.size()) continue;
    const Status status = status_of(entry->path());
    if (status.parent == getpid() && status.running && !is_worker(pid)) found.push_back(pid);
  }
  return found;
}

}  // namespace outrigger::tools
