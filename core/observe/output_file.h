// SPDX-License-Identifier: Apache-2.0
// A file that is written to while a training runs, one for each rank and engine of a folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace outrigger::observe {

class OutputFile {
 public:
  // Makes the folder, and in it "rank-3SUFFIX", or where that is taken "rank-3-2SUFFIX" and so on:
  // earlier runs, and other engines of a rank, keep theirs. Throws OTR_E_IO.
  OutputFile(const std::string& folder, int32_t rank, std::string_view suffix);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // All of the text, with one call of the system where it takes all, so that a reader sees whole
  // lines. After a failure nothing more is written. False: this call has failed.
  bool write(std::string_view text) noexcept;
  // The file is not wanted after all.
  void remove() noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t written() const { return written_; }  // bytes
  [[nodiscard]] int error() const { return error_; }          // of the failed write; 0: none

 private:
  std::string path_;
  int descriptor_ = -1;
  int error_ = 0;
  int64_t written_ = 0;
};

}  // namespace outrigger::observe
