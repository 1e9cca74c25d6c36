// SPDX-License-Identifier: Apache-2.0
#include "core/observe/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::observe {
namespace {

constexpr int kMostFiles = 10000;  // of one rank in a folder

std::string text_of(int error) { return std::generic_category().message(error); }

}  // namespace

OutputFile::OutputFile(const std::string& folder, int32_t rank, std::string_view suffix) {
  std::error_code reason;
  std::filesystem::create_directories(folder, reason);
  if (reason) {
    fail(OTR_E_IO, "cannot make the folder {}: {}", printable(folder, 200), reason.message());
  }
  for (int number = 1; number <= kMostFiles && descriptor_ < 0; ++number) {
    const std::string turn = number == 1 ? "" : format_text("-{}", number);
    path_ = format_text("{}/rank-{}{}{}", folder, rank, turn, suffix);
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) {
      fail(OTR_E_IO, "cannot make the file {}: {}", printable(path_, 200), text_of(errno));
    }
  }
  if (descriptor_ < 0) {
    fail(OTR_E_IO, "{} has {} files of rank {} already: choose another folder",
         printable(folder, 200), kMostFiles, rank);
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void OutputFile::remove() noexcept { unlink(path_.c_str()); }

bool OutputFile::write(std::string_view text) noexcept {
  if (error_ != 0) return true;  // that was told
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor_, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      error_ = errno;
      return false;
    }
    written_ += done;
    text.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

}  // namespace outrigger::observe
