// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/recorder.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {

Recorder::Recorder(const std::string& path, std::function<void()> after)
    : FaultyFiles([](int64_t, Operation) { return 0; }),
      top_(read_tree(path)),
      after_(std::move(after)) {}

Recorder::Link Recorder::read_tree(const std::string& path) {
  auto node = std::make_shared<Node>();
  node->is_folder = true;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    Link inner = std::make_shared<Node>();
    if (entry.is_directory()) {
      inner = read_tree(entry.path().string());
    } else {
      inner->now = inner->synced = read_text(entry.path().string());
    }
    node->names[entry.path().filename().string()] = inner;
  }
  node->synced_names = node->names;
  return node;
}

void Recorder::materialise(const std::string& path, const Loss& loss) const {
  write_tree(*top_, path, loss, true);
}

void Recorder::write_tree(const Node& folder, const std::string& path, const Loss& loss, bool top) {
  const bool names_are_lost = top ? loss.top_names : loss.inner_names;
  for (const auto& [name, node] : names_are_lost ? folder.synced_names : folder.names) {
    const std::string inner = path + '/' + name;
    if (node->is_folder) {
      std::filesystem::create_directory(inner);
      write_tree(*node, inner, loss, false);
    } else {
      write_text(inner, node->synced);
    }
  }
}

int Recorder::open(int folder, const char* name, int flags, mode_t mode) {
  const int fd = FaultyFiles::open(folder, name, flags, mode);
  if (fd < 0) return fd;
  if (folder == AT_FDCWD) {
    open_[fd] = top_;
    return fd;
  }
  Link& node = open_.at(folder)->names[name];
  const bool is_new = !node;
  if (is_new) node = std::make_shared<Node>();
  open_[fd] = node;
  if (is_new) after_();
  return fd;
}

int Recorder::close(int fd) {
  open_.erase(fd);
  return FaultyFiles::close(fd);
}

ssize_t Recorder::write(int fd, const void* data, size_t bytes, off_t offset) {
  const ssize_t done = FaultyFiles::write(fd, data, bytes, offset);
  if (done <= 0) return done;
  std::string& text = open_.at(fd)->now;
  const auto begin = static_cast<size_t>(offset), count = static_cast<size_t>(done);
  text.resize(std::max(text.size(), begin + count));
  std::memcpy(text.data() + begin, data, count);
  after_();
  return done;
}

int Recorder::sync(int fd) {
  const int result = FaultyFiles::sync(fd);
  Node& node = *open_.at(fd);
  node.synced = node.now;
  node.synced_names = node.names;
  after_();
  return result;
}

int Recorder::rename(int folder, const char* from, const char* to) {
  const int result = FaultyFiles::rename(folder, from, to);
  if (result < 0) return result;
  auto& names = open_.at(folder)->names;
  names[to] = names.at(from);
  names.erase(from);
  after_();
  return result;
}

int Recorder::unlink(int folder, const char* name, int flags) {
  const int result = FaultyFiles::unlink(folder, name, flags);
  if (result < 0) return result;
  open_.at(folder)->names.erase(name);
  after_();
  return result;
}

int Recorder::make_folder(int folder, const char* name) {
  const int result = FaultyFiles::make_folder(folder, name);
  if (result < 0) return result;
  auto node = std::make_shared<Node>();
  node->is_folder = true;
  open_.at(folder)->names[name] = node;
  after_();
  return result;
}

}  // namespace outrigger::checkpoint::test
