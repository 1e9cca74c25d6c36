// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "fault.h"
#include "text.h"

namespace outrigger::tools {
namespace {

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    text.remove_prefix(static_cast<size_t>(done));
  }
  return fsync(descriptor) == 0 || errno == EINVAL;  // EINVAL: a pipe or a device
}

}  // namespace

std::string read_all(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::ifstream open_file(const std::string& file) {
  std::error_code unknown;
  std::ifstream in(file, std::ios::binary);
  const int reason = std::filesystem::is_directory(file, unknown) ? EISDIR : in ? 0 : errno;
  if (reason != 0) {
    throw Misuse(format_text("cannot open {}: {}", file, std::strerror(reason)), OTR_E_SYSTEM);
  }
  return in;
}

std::string read_file(const std::string& file) {
  std::ifstream in = open_file(file);
  return read_all(in);
}

void write_file(const std::string& file, const std::string& text, bool replace) {
  const std::string target = replace ? format_text("{}.{}.part", file, getpid()) : file;
  const int descriptor = open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0 && errno == EEXIST) {
    fail(OTR_E_ARGUMENT, "{} exists; name another file, or give --force to replace it", target);
  }
  if (descriptor < 0) fail(OTR_E_SYSTEM, "cannot write {}: {}", target, std::strerror(errno));
  const bool written = write_all(descriptor, text);
  const int reason = errno;
  close(descriptor);
  if (written && (!replace || std::rename(target.c_str(), file.c_str()) == 0)) return;
  const int last = written ? errno : reason;
  unlink(target.c_str());
  fail(OTR_E_SYSTEM, "cannot write {}: {}", file, std::strerror(last));
}

}  // namespace outrigger::tools
