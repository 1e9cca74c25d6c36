// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/checkpoint/safetensors.h"

namespace outrigger::checkpoint::test {

// A folder that is there as long as this lives.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(std::string_view name) const {
    return path_ + '/' + std::string(name);
  }
  [[nodiscard]] Folder open(Files& files = posix_files()) const {
    return Folder::open(files, path_);
  }

 private:
  std::string path_;
};

// Length, header, data.
[[nodiscard]] std::string file_of(std::string_view header, std::string_view data = "");
void write_text(const std::string& path, std::string_view text);
[[nodiscard]] std::string read_text(const std::string& path);

[[nodiscard]] std::span<const std::byte> bytes_of_text(std::string_view text);
[[nodiscard]] std::string read_tensor(const Reader& reader, std::string_view name);

// The body must fail so, with all the words in its text, in one printable line. Returns the text.
std::string expect_error(int32_t status, std::initializer_list<std::string_view> words,
                         const std::function<void()>& body);

// The number of this process's open descriptors.
[[nodiscard]] size_t open_descriptors();

}  // namespace outrigger::checkpoint::test
