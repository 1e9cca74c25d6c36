// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/memory_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace otr_fuzz {
std::string MemoryFiles::path_of(int folder, const char* name) const {
  if (folder == AT_FDCWD) return name;
  const auto found = open_.find(folder);
  return found == open_.end() ? "" : found->second + '/' + name;
}

bool MemoryFiles::exists(const std::string& path) const {
  return files_.contains(path) || folders_.contains(path);
}

int MemoryFiles::open(int folder, const char* name, int flags, mode_t /*mode*/) {
  const std::string path = path_of(folder, name);
  if (path.find("/../") != std::string::npos || path.starts_with("..") || path.starts_with('/')) {
    if (escaped_.empty()) escaped_ = path;
    return -EACCES;
  }
  if ((flags & O_DIRECTORY) != 0 && files_.contains(path)) return -ENOTDIR;
  if (!exists(path)) {
    if ((flags & O_CREAT) == 0) return -ENOENT;
    files_[path] = "";
  } else if ((flags & O_EXCL) != 0) {
    return -EEXIST;
  }
  open_[next_] = path;
  return next_++;
}

int MemoryFiles::close(int fd) { return open_.erase(fd) == 1 ? 0 : -EBADF; }

int MemoryFiles::stat(int fd, struct stat& out) {
  const std::string& path = open_.at(fd);
  out.st_mode = folders_.contains(path) ? S_IFDIR : S_IFREG;
  const auto file = files_.find(path);
  out.st_size = file == files_.end() ? 0 : static_cast<off_t>(file->second.size());
  return 0;
}

ssize_t MemoryFiles::read(int fd, void* data, size_t bytes, off_t offset) {
  const auto file = files_.find(open_.at(fd));
  if (file == files_.end()) return -EISDIR;
  const std::string_view text = file->second;
  // A reader asks for no more than there is: it would hold memory for it.
  if (bytes > std::max<size_t>(text.size(), 128)) return -EFAULT;
  const std::string_view rest = text.substr(std::min(static_cast<size_t>(offset), text.size()));
  bytes = std::min(bytes, rest.size());
  std::memcpy(data, rest.data(), bytes);
  return static_cast<ssize_t>(bytes);
}

ssize_t MemoryFiles::write(int fd, const void* data, size_t bytes, off_t offset) {
  const std::lock_guard lock(writing_);
  std::string& text = files_.at(open_.at(fd));
  const size_t end = static_cast<size_t>(offset) + bytes;
  if (text.size() < end) text.resize(end);
  std::memcpy(text.data() + offset, data, bytes);
  return static_cast<ssize_t>(bytes);
}

int MemoryFiles::rename(int folder, const char* from, const char* to) {
  const std::string old_path = path_of(folder, from), path = path_of(folder, to);
  if (!exists(old_path)) return -ENOENT;
  if (files_.contains(old_path)) {
    files_[path] = std::move(files_.extract(old_path).mapped());
    return 0;
  }
  if (exists(path)) return -ENOTEMPTY;
  std::map<std::string, std::string> moved;
  std::erase_if(files_, [&](auto& file) {
    if (!file.first.starts_with(old_path + '/')) return false;
    moved[path + file.first.substr(old_path.size())] = std::move(file.second);
    return true;
  });
  files_.merge(moved);
  folders_.erase(old_path);
  folders_.insert(path);
  return 0;
}

int MemoryFiles::link(int folder, const char* from, const char* to) {
  const std::string path = path_of(folder, to);
  if (exists(path)) return -EEXIST;
  files_[path] = files_.at(path_of(folder, from));
  return 0;
}

int MemoryFiles::unlink(int folder, const char* name, int flags) {
  const std::string path = path_of(folder, name);
  if ((flags & AT_REMOVEDIR) != 0) return folders_.erase(path) == 1 ? 0 : -ENOENT;
  if (folders_.contains(path)) return -EISDIR;
  return files_.erase(path) == 1 ? 0 : -ENOENT;
}

int MemoryFiles::make_folder(int folder, const char* name) {
  const std::string path = path_of(folder, name);
  if (exists(path)) return -EEXIST;
  folders_.insert(path);
  return 0;
}

int MemoryFiles::list(int folder, std::vector<std::string>& names) {
  const std::string begin = open_.at(folder) + '/';
  const auto add = [&](const std::string& path) {
    if (!path.starts_with(begin)) return;
    const std::string name = path.substr(begin.size());
    if (name.find('/') == std::string::npos) names.push_back(name);
  };
  for (const auto& [path, text] : files_) add(path);
  for (const std::string& path : folders_) add(path);
  return 0;
}

std::string joined(std::span<const std::string> files) {
  std::string text;
  for (const std::string& file : files) {
    const auto bytes = static_cast<uint32_t>(file.size());
    text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    text += file;
  }
  return text;
}

void part(std::string_view text, std::span<std::string> files) {
  for (std::string& file : files) {
    uint32_t bytes = 0;
    if (text.size() < sizeof bytes) break;
    std::memcpy(&bytes, text.data(), sizeof bytes);
    text.remove_prefix(sizeof bytes);
    file = text.substr(0, bytes);
    text.remove_prefix(file.size());
  }
}

}  // namespace otr_fuzz
