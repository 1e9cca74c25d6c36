// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/support.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::checkpoint::test {

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "outrigger_checkpoint_XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder: " + path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string file_of(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  text += header;
  text += data;
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string read_tensor(const Reader& reader, std::string_view name) {
  const Entry& entry = reader.at(name);
  std::string out(static_cast<size_t>(entry.bytes), '\0');
  reader.read(entry, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

std::string expect_error(int32_t status, std::initializer_list<std::string_view> words,
                         const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.status(), status) << text;
    EXPECT_EQ(printable(text, std::numeric_limits<size_t>::max()), text);
    EXPECT_LT(text.size(), 4000U);
    for (const std::string_view word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' is not in: " << text;
    }
    return text;
  }
  ADD_FAILURE() << "no error with status " << status;
  return "";
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace outrigger::checkpoint::test
