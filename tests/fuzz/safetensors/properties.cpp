// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/safetensors/properties.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"

namespace otr_fuzz_safetensors {
namespace {

using namespace outrigger;              // NOLINT(google-build-using-namespace)
using namespace outrigger::checkpoint;  // NOLINT(google-build-using-namespace)

constexpr size_t kLongestMessage = 4000;

// A folder with one file, which lies in memory and can only be read.
class MemoryFiles : public Files {
 public:
  explicit MemoryFiles(std::string_view file) : file_(file) {}

  int open(int, const char*, int, mode_t) override { return 0; }
  int close(int) override { return 0; }
  int stat(int, struct stat& out) override {
    out.st_mode = S_IFREG;
    out.st_size = static_cast<off_t>(file_.size());
    return 0;
  }
  ssize_t read(int, void* data, size_t bytes, off_t offset) override {
    if (bytes > file_.size()) return -EFAULT;  // the reader asks for no more than there is
    const std::string_view rest = file_.substr(std::min(static_cast<size_t>(offset), file_.size()));
    bytes = std::min(bytes, rest.size());
    std::memcpy(data, rest.data(), bytes);
    return static_cast<ssize_t>(bytes);
  }
  ssize_t write(int, const void*, size_t, off_t) override { return -EROFS; }
  int allocate(int, off_t) override { return -EROFS; }
  int set_direct(int, bool) override { return -EROFS; }
  int sync(int) override { return -EROFS; }
  int lock(int) override { return -EROFS; }
  int rename(int, const char*, const char*) override { return -EROFS; }
  int link(int, const char*, const char*) override { return -EROFS; }
  int unlink(int, const char*, int) override { return -EROFS; }
  int make_folder(int, const char*) override { return -EROFS; }
  int list(int, std::vector<std::string>&) override { return -EROFS; }

 private:
  std::string_view file_;
};

// One printable line that names the file, of a class that a file can be the cause of.
std::string fault_of(const Error& error) {
  const std::string text = error.what();
  if (error.status() != OTR_E_CORRUPT && error.status() != OTR_E_UNSUPPORTED) {
    return format_text("status {}: {}", error.status(), text);
  }
  if (text.size() > kLongestMessage) return "a message that is too long: " + text;
  if (printable(text, kLongestMessage) != text) return "a message that is not one line: " + text;
  return text.find("folder/file: ") == std::string::npos ? "names no file: " + text : "";
}

// Entries follow each other, have the bytes that they say, and are found and read.
std::string fault_of_entries(const Reader& reader) {
  int64_t end = 0;
  for (const Entry& entry : reader.entries()) {
    if (entry.begin != end) return format_text("'{}' does not follow", entry.name);
    if (bytes_of(entry.shape, entry.dtype) != entry.bytes) return "a size that is not its shape's";
    if (reader.find(entry.name) != &entry) return format_text("'{}' is not found", entry.name);
    std::vector<std::byte> bytes(static_cast<size_t>(entry.bytes));
    reader.read(entry, 0, bytes);
    end += entry.bytes;
  }
  return "";
}

// The header that we would write for it reads as the same.
std::string fault_of_rewriting(const Reader& reader) {
  std::vector<const Entry*> entries;
  int64_t end = 0;
  for (const Entry& entry : reader.entries()) {
    entries.push_back(&entry);
    end += entry.bytes;
  }
  const Table again = parse_table(header_text(entries, reader.metadata()), end, "rewritten");
  return again.entries() == reader.entries() && again.metadata() == reader.metadata()
             ? ""
             : "rewritten it reads as another";
}

}  // namespace

Verdict check_file(std::string_view file) try {
  MemoryFiles files(file);
  const Folder folder = Folder::open(files, "folder");
  try {
    const Reader reader(folder, "file");
    std::string broken = fault_of_entries(reader);
    if (broken.empty()) broken = fault_of_rewriting(reader);
    return {true, broken};
  } catch (const Error& error) {
    return {false, fault_of(error)};
  }
} catch (const std::exception& error) {
  return {false, format_text("an exception that is no Error: {}", error.what())};
}

}  // namespace otr_fuzz_safetensors
