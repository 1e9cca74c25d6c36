// SPDX-License-Identifier: Apache-2.0
// Files and folders that lie in memory, for readers and writers of checkpoints: a disk costs too
// much for each input of a fuzzer.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/files.h"

namespace otr_fuzz {

// Threads may write to one file; all else is for one. Paths have no "." and "..": who opens one is
// refused, and noted.
class MemoryFiles : public outrigger::checkpoint::Files {
 public:
  void add_folder(const std::string& path) { folders_.insert(path); }
  void add_file(const std::string& path, std::string_view text) { files_[path] = text; }
  [[nodiscard]] const std::map<std::string, std::string>& files() const { return files_; }
  // The first path that was opened and leads out of its folder; empty: none.
  [[nodiscard]] const std::string& escaped() const { return escaped_; }
  [[nodiscard]] size_t open_descriptors() const { return open_.size(); }

  int open(int folder, const char* name, int flags, mode_t mode) override;
  int close(int fd) override;
  int stat(int fd, struct stat& out) override;
  ssize_t read(int fd, void* data, size_t bytes, off_t offset) override;
  ssize_t write(int fd, const void* data, size_t bytes, off_t offset) override;
  int allocate(int, off_t) override { return 0; }
  int set_direct(int, bool) override { return 0; }
  int sync(int) override { return 0; }
  int lock(int) override { return 0; }
  int rename(int folder, const char* from, const char* to) override;
  int link(int folder, const char* from, const char* to) override;
  int unlink(int folder, const char* name, int flags) override;
  int make_folder(int folder, const char* name) override;
  int list(int folder, std::vector<std::string>& names) override;

 private:
  [[nodiscard]] std::string path_of(int folder, const char* name) const;
  [[nodiscard]] bool exists(const std::string& path) const;

  std::mutex writing_;
  std::map<std::string, std::string> files_;
  std::set<std::string> folders_;
  std::map<int, std::string> open_;
  int next_ = 3;
  std::string escaped_;
};

// Several files as a fuzzer's one input, each behind its length; and back, as far as it goes.
[[nodiscard]] std::string joined(std::span<const std::string> files);
void part(std::string_view text, std::span<std::string> files);

}  // namespace otr_fuzz
