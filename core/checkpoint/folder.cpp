// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/calls.h"
#include "core/checkpoint/files.h"

namespace outrigger::checkpoint {
namespace {

// Deeper folders were not made by us.
constexpr int kMaxDepth = 16;

std::string kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

File regular_file(Descriptor descriptor) {
  const mode_t mode = descriptor.status().st_mode;
  if (!S_ISREG(mode)) {
    fail(OTR_E_CORRUPT, "{}: cannot open it: it is {}, not a file", descriptor.path(),
         kind_of(mode));
  }
  return File(std::move(descriptor));
}

constexpr int kToRead = O_RDONLY | O_NONBLOCK;  // a pipe must not wait for its writer

}  // namespace

File File::open(Files& files, const std::string& path) {
  const std::string shown = printable(path, 1000);
  if (path.empty() || path.find('\0') != std::string::npos) {
    fail(OTR_E_ARGUMENT, "'{}' is no path of a file", shown);
  }
  const int fd = repeat_interrupted([&] { return files.open(AT_FDCWD, path.c_str(), kToRead, 0); });
  if (fd < 0) fail_call(shown, "open it", fd);
  return regular_file({files, fd, shown});
}

bool is_folder(Files& files, const std::string& path) {
  const int fd = repeat_interrupted(
      [&] { return files.open(AT_FDCWD, path.c_str(), O_PATH | O_DIRECTORY, 0); });
  if (fd < 0) return false;  // why not is said where it is opened
  static_cast<void>(Descriptor(files, fd, printable(path, 1000)));
  return true;
}

void require_plain_name(std::string_view name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
                     name.find('/') == std::string_view::npos &&
                     name.find('\0') == std::string_view::npos;
  if (plain) return;
  fail(OTR_E_ARGUMENT,
       "'{}' is no name of a file in a folder: 1 to 255 bytes without '/', not \".\" or \"..\"",
       printable(name, 300));
}

Folder Folder::open(Files& files, const std::string& path) {
  const std::string shown = printable(path, 1000);
  if (path.empty() || path.find('\0') != std::string::npos) {
    fail(OTR_E_ARGUMENT, "'{}' is no path of a folder", shown);
  }
  const int fd = repeat_interrupted(
      [&] { return files.open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY, 0); });
  if (fd < 0) fail_call(shown, "open the folder", fd);
  return Folder({files, fd, shown});
}

std::string Folder::path_of(std::string_view name) const {
  return path() + (path().ends_with('/') ? "" : "/") + printable(name, 300);
}

int Folder::open_fd(std::string_view name, int flags) const {
  require_plain_name(name);
  const std::string text(name);
  return repeat_interrupted(
      [&] { return files().open(descriptor_.fd(), text.c_str(), flags | O_NOFOLLOW, 0666); });
}

Folder Folder::open_folder(std::string_view name) const {
  const int fd = open_fd(name, O_RDONLY | O_DIRECTORY);
  if (fd < 0) fail_call(path_of(name), "open the folder", fd);
  return Folder({files(), fd, path_of(name)});
}

File Folder::create_file(std::string_view name) {
  const int fd = open_fd(name, O_WRONLY | O_CREAT | O_EXCL);
  if (fd < 0) fail_call(path_of(name), "create it", fd);
  return File({files(), fd, path_of(name)});
}

void Folder::write_text(std::string_view name, std::string_view text) {
  File file = create_file(name);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

std::optional<File> Folder::find_file(std::string_view name) const {
  const int fd = open_fd(name, kToRead);
  if (fd == -ENOENT) return std::nullopt;
  if (fd < 0) fail_call(path_of(name), "open it", fd);
  return regular_file({files(), fd, path_of(name)});
}

File Folder::open_file(std::string_view name) const {
  std::optional<File> file = find_file(name);
  if (!file) fail_call(path_of(name), "open it", -ENOENT);
  return std::move(*file);
}

Descriptor Folder::open_or_create(std::string_view name) {
  const int fd = open_fd(name, O_RDWR | O_CREAT | O_NONBLOCK);
  if (fd < 0) fail_call(path_of(name), "open it", fd);
  return {files(), fd, path_of(name)};
}

void Folder::make_folder(std::string_view name) {
  require_plain_name(name);
  const std::string text(name);
  require(path_of(name), "make the folder",
          [&] { return files().make_folder(descriptor_.fd(), text.c_str()); });
}

void Folder::rename(std::string_view from, std::string_view to) {
  require_plain_name(from);
  require_plain_name(to);
  const std::string old_name(from), new_name(to);
  require(path_of(from), format_text("rename it to {}", printable(to, 300)),
          [&] { return files().rename(descriptor_.fd(), old_name.c_str(), new_name.c_str()); });
}

void Folder::move_between(std::string_view from, std::string_view to, std::string_view name) {
  for (const std::string_view each : {from, to, name}) require_plain_name(each);
  const std::string old_name = format_text("{}/{}", from, name);
  const std::string new_name = format_text("{}/{}", to, name);
  require(path_of(from), format_text("move {} to {}", printable(name, 300), printable(to, 300)),
          [&] { return files().rename(descriptor_.fd(), old_name.c_str(), new_name.c_str()); });
}

void Folder::link(std::string_view from, std::string_view to) {
  require_plain_name(from);
  require_plain_name(to);
  const std::string old_name(from), new_name(to);
  require(path_of(from), format_text("link it as {}", printable(to, 300)),
          [&] { return files().link(descriptor_.fd(), old_name.c_str(), new_name.c_str()); });
}

void Folder::remove_file(std::string_view name) {
  require_plain_name(name);
  const std::string text(name);
  require(path_of(name), "remove it",
          [&] { return files().unlink(descriptor_.fd(), text.c_str(), 0); });
}

void Folder::remove_all(std::string_view name) { remove_all(name, 0); }

void Folder::remove_all(std::string_view name, int depth) {
  require_plain_name(name);
  const std::string text(name);
  const int result = files().unlink(descriptor_.fd(), text.c_str(), 0);
  if (result >= 0 || result == -ENOENT) return;
  if (result != -EISDIR && result != -EPERM) fail_call(path_of(name), "remove it", result);
  if (depth == kMaxDepth) {
    fail(OTR_E_CORRUPT, "{}: cannot remove it: folders nest deeper than {}", path_of(name),
         kMaxDepth);
  }
  Folder inner = open_folder(name);
  for (const std::string& entry : inner.names()) inner.remove_all(entry, depth + 1);
  require(path_of(name), "remove the folder",
          [&] { return files().unlink(descriptor_.fd(), text.c_str(), AT_REMOVEDIR); });
}

bool Folder::has(std::string_view name) const {
  const int fd = open_fd(name, O_PATH);
  if (fd == -ENOENT) return false;
  if (fd < 0) fail_call(path_of(name), "look for it", fd);
  (void)Descriptor(files(), fd, path_of(name));
  return true;
}

bool Folder::has_folder(std::string_view name) const {
  const int fd = open_fd(name, O_PATH | O_DIRECTORY);
  if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP) return false;
  if (fd < 0) fail_call(path_of(name), "look for the folder", fd);
  (void)Descriptor(files(), fd, path_of(name));
  return true;
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> names;
  require(path(), "list the folder", [&] {
    names.clear();
    return files().list(descriptor_.fd(), names);
  });
  std::erase_if(names, [](const std::string& name) { return name == "." || name == ".."; });
  std::ranges::sort(names);
  return names;
}

}  // namespace outrigger::checkpoint
