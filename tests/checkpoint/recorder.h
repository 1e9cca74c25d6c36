// SPDX-License-Identifier: Apache-2.0
// The system's files, and beside them what a disk would hold if power were lost after each call.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/checkpoint/faults.h"

namespace outrigger::checkpoint::test {

// What was not synced may be there or not. Contents are lost; the names in a folder are as they
// were at its last sync, or as they are now.
struct Loss {
  bool top_names = false, inner_names = false;  // of the folder of checkpoints; of those in it
};

// Of one folder, opened by its path; what lies in it at first is durable.
class Recorder : public FaultyFiles {
 public:
  // `after` is called after each call that changes something.
  Recorder(const std::string& path, std::function<void()> after);

  // Makes what the disk holds at `path`, an empty folder.
  void materialise(const std::string& path, const Loss& loss) const;

  int open(int folder, const char* name, int flags, mode_t mode) override;
  int close(int fd) override;
  ssize_t write(int fd, const void* data, size_t bytes, off_t offset) override;
  int sync(int fd) override;
  int rename(int folder, const char* from, const char* to) override;
  int unlink(int folder, const char* name, int flags) override;
  int make_folder(int folder, const char* name) override;

 private:
  struct Node {
    bool is_folder = false;
    std::string now, synced;
    std::map<std::string, std::shared_ptr<Node>> names, synced_names;
  };
  using Link = std::shared_ptr<Node>;

  static Link read_tree(const std::string& path);
  static void write_tree(const Node& folder, const std::string& path, const Loss& loss, bool top);

  Link top_;
  std::map<int, Link> open_;
  std::function<void()> after_;
};

}  // namespace outrigger::checkpoint::test
