// SPDX-License-Identifier: Apache-2.0
// Runs programs and looks at what they leave behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace outrigger::testing {

struct Result {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
  double seconds = 0;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// A program that runs, with both outputs collected.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command, const Environment& extra = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills it if it still runs

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Waits until standard error contains the text; false after the limit or at its end.
  [[nodiscard]] bool wait_for_error_text(const std::string& text, double limit_seconds);
  [[nodiscard]] const std::string& error_text() const { return result_.err; }  // so far
  // Waits for the end; past the limit the process is killed and the code is 128 + 9.
  [[nodiscard]] Result finish(double limit_seconds = 60);

 private:
  // Reads for at most 50 ms; false when both outputs are at their end.
  bool collect();

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  Result result_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// How often the part is in the text.
[[nodiscard]] int count(const std::string& text, const std::string& part);

[[nodiscard]] Result run(const std::vector<std::string>& command, const Environment& extra = {});

// The number that `outrigger run --verbose` told for a rank's process.
[[nodiscard]] pid_t pid_of_rank(const std::string& error_text, int rank);

// True when no such process runs (one that ended and was not waited for counts as ended).
[[nodiscard]] bool has_ended(pid_t pid);

// A folder of its own that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

[[nodiscard]] std::string read_text(const std::string& path);

}  // namespace outrigger::testing
