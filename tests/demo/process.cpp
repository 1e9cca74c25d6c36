// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>

namespace outrigger::testing {

Process::Process(const std::vector<std::string>& command, const Environment& extra) {
  std::array<int, 2> out{}, err{};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    for (const auto& [name, value] : extra) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int descriptor : {out_, err_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

bool Process::collect() {
  std::array<pollfd, 2> descriptors{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  poll(descriptors.data(), descriptors.size(), 50);
  for (size_t i = 0; i < 2; i++) {
    if (descriptors[i].revents == 0) continue;
    std::array<char, 4096> buffer;
    int& descriptor = i == 0 ? out_ : err_;
    const ssize_t got = read(descriptor, buffer.data(), buffer.size());
    if (got > 0) {
      (i == 0 ? result_.out : result_.err).append(buffer.data(), static_cast<size_t>(got));
    } else {
      close(descriptor);
      descriptor = -1;
    }
  }
  return out_ >= 0 || err_ >= 0;
}

bool Process::wait_for_error_text(const std::string& text, double limit_seconds) {
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_seconds);
  while (result_.err.find(text) == std::string::npos) {
    if (std::chrono::steady_clock::now() > limit || !collect()) {
      return result_.err.find(text) != std::string::npos;
    }
  }
  return true;
}

Result Process::finish(double limit_seconds) {
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_seconds);
  while (collect()) {
    if (std::chrono::steady_clock::now() > limit) {
      kill(pid_, SIGKILL);
      break;
    }
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  return result_;
}

Result run(const std::vector<std::string>& command, const Environment& extra) {
  return Process(command, extra).finish();
}

pid_t pid_of_rank(const std::string& error_text, int rank) {
  std::smatch match;
  const std::regex line("rank " + std::to_string(rank) + " is process ([0-9]+)");
  return std::regex_search(error_text, match, line) ? std::stoi(match[1]) : -1;
}

bool has_ended(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text{std::istreambuf_iterator<char>(stat), std::istreambuf_iterator<char>()};
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || text.compare(name_end, 3, ") Z") == 0 ||
         text.compare(name_end, 3, ") X") == 0;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path().string() + "/outrigger-demo-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream(file(name), std::ios::binary) << content;
  return file(name);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) found++;
  return found;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace outrigger::testing
