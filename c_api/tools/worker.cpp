// SPDX-License-Identifier: Apache-2.0
#include "worker.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "text.h"

namespace outrigger::tools {
namespace {

// Everything in this function runs in the child, which has one thread, as its parent had.
void set_environment(const WorkerOptions& options) {
  const std::string world = std::to_string(options.world), rank = std::to_string(options.rank);
  const std::string threads = std::to_string(options.threads);
  const std::string restarts = std::to_string(options.restarts);
  const std::string most = std::to_string(options.max_restarts);
  setenv("RANK", rank.c_str(), 1);
  setenv("LOCAL_RANK", rank.c_str(), 1);
  setenv("WORLD_SIZE", world.c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", world.c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", options.port.c_str(), 1);
  // torchrun's names: a program need not know which launcher counts its restarts.
  setenv("TORCHELASTIC_RUN_ID", options.run_id.c_str(), 1);
  setenv("TORCHELASTIC_RESTART_COUNT", restarts.c_str(), 1);
  setenv("TORCHELASTIC_MAX_RESTARTS", most.c_str(), 1);
  setenv("OMP_NUM_THREADS", threads.c_str(), 0);  // what the user set, stays
  setenv("OPENBLAS_NUM_THREADS", threads.c_str(), 0);
}

void redirect_output(const WorkerOptions& options, int output) {
  if (options.rank == 0) return;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
}

// Does not return. A failure goes to the parent as an errno through `report`, which exec closes.
[[noreturn]] void become_program(const WorkerOptions& options, pid_t parent, int output,
                                 int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent had ended before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (options.cores.empty()) {
    unsetenv("OTR_CORES_BOUND");
  } else if (bind_to(options.cores)) {
    setenv("OTR_CORES_BOUND", "1", 1);  // the library then takes all it sees for this worker's own
  } else {
    say("outrigger run: rank {} cannot be bound to cores {}: {}\n", options.rank,
        format_cores(options.cores), std::strerror(errno));
  }
  set_environment(options);
  redirect_output(options, output);
  std::vector<char*> arguments;
  arguments.reserve(options.program.size() + 1);
  for (const std::string& word : options.program)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = write(report, &reason, sizeof reason);
  _exit(127);
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error(format_text("cannot make a pipe: {}", std::strerror(errno)));
  }
  return ends;
}

}  // namespace

Worker::Worker(const WorkerOptions& options) : rank_(options.rank) {
  const pid_t parent = getpid();
  std::array<int, 2> output{-1, -1};
  if (rank_ != 0) {
    output = make_pipe();
    relay_.emplace(output[0], rank_);
  }
  const std::array<int, 2> report = make_pipe();
  pid_ = fork();
  if (pid_ == 0) become_program(options, parent, output[1], report[1]);
  const int fork_error = errno;
  if (output[1] >= 0) close(output[1]);
  close(report[1]);
  int reason = 0;
  const bool failed =
      pid_ < 0 || read(report[0], &reason, sizeof reason) > 0;  // end of file: it runs
  close(report[0]);
  if (!failed) return;
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  throw std::runtime_error(format_text("cannot start '{}': {}", options.program[0],
                                       std::strerror(pid_ < 0 ? fork_error : reason)));
}

Worker::~Worker() {
  if (!running()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Worker::reap(double seconds) {
  int status = 0;
  if (!running() || waitpid(pid_, &status, WNOHANG) != pid_) return false;
  wait_status_ = status;
  end_seconds_ = seconds;
  return true;
}

void Worker::signal(int number) const noexcept {
  if (running()) kill(pid_, number);
}

bool Worker::was_killed() const noexcept { return wait_status_ && WIFSIGNALED(*wait_status_); }

int Worker::exit_code() const noexcept {
  if (!wait_status_) return 0;
  return was_killed() ? 128 + WTERMSIG(*wait_status_) : WEXITSTATUS(*wait_status_);
}

std::string Worker::fate() const {
  if (!wait_status_) return "is running";
  if (was_killed()) {
    const int number = WTERMSIG(*wait_status_);
    return format_text("was killed by signal {} ({}) after {:.1f} s", number, strsignal(number),
                       end_seconds_);
  }
  return format_text("ended with exit code {} after {:.1f} s", WEXITSTATUS(*wait_status_),
                     end_seconds_);
}

Relay::Relay(int descriptor, int rank)
    : descriptor_(descriptor), prefix_(format_text("[rank {}] ", rank)) {
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
}

Relay::Relay(Relay&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      prefix_(std::move(other.prefix_)),
      pending_(std::move(other.pending_)) {}

Relay::~Relay() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Relay::pump() {
  constexpr size_t longest_line = size_t{1} << 16;
  std::array<char, 4096> buffer;
  // Bounded, so that a worker that floods its output cannot keep the launcher from its other
  // duties.
  for (int round = 0; round < 64 && descriptor_ >= 0; round++) {
    const ssize_t got = read(descriptor_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      close(descriptor_);
      descriptor_ = -1;
    } else {
      pending_.append(buffer.data(), static_cast<size_t>(got));
    }
    write_lines(descriptor_ < 0 || pending_.size() > longest_line);
  }
}

void Relay::write_lines(bool all) {
  size_t begin = 0;
  for (size_t end = 0; (end = pending_.find('\n', begin)) != pending_.npos; begin = end + 1) {
    say("{}{}\n", prefix_, std::string_view(pending_).substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  if (all && !pending_.empty()) {
    say("{}{}\n", prefix_, pending_);
    pending_.clear();
  }
}

}  // namespace outrigger::tools
