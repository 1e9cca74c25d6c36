// SPDX-License-Identifier: Apache-2.0
// Files of the safetensors format: an 8-byte little-endian length, a JSON header of that length,
// the tensors' bytes. Values are little-endian, as on every machine that this library is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/checkpoint/table.h"

namespace outrigger::checkpoint {

// A file is untrusted: it is OTR_E_CORRUPT in all but its values before the first of them is read,
// and what is held is at most eight times its header. Accepts nothing that the official reader
// refuses. read() may be called from several threads.
class Reader {
 public:
  Reader(const Folder& folder, std::string_view name);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return table_.entries(); }  // by begin
  [[nodiscard]] const Entry* find(std::string_view name) const { return table_.find(name); }
  [[nodiscard]] const Entry& at(std::string_view name) const;  // throws OTR_E_NOT_FOUND
  [[nodiscard]] const Metadata& metadata() const { return table_.metadata(); }
  [[nodiscard]] int64_t file_bytes() const { return file_bytes_; }
  // Bytes [offset, offset + out.size()) of the tensor; `entry` is one of entries().
  void read(const Entry& entry, int64_t offset, std::span<std::byte> out) const;

 private:
  Table read_table(int64_t file_bytes);

  File file_;
  int64_t file_bytes_, data_begin_ = 0;
  Table table_;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<int64_t> shape;
};

// All tensors are given up front; their bytes come in any order, from any thread, each byte once.
// Whoever owns the folder removes a file that was not finished.
class Writer {
 public:
  // Throws OTR_E_ARGUMENT for names that are not UTF-8 or not different, and for what a reader
  // would refuse.
  Writer(Folder& folder, std::string_view name, std::vector<TensorSpec> tensors, Metadata metadata);
  ~Writer();

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] int64_t file_bytes() const { return file_bytes_; }
  // In the order in which they were given.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // Bytes [offset, offset + data.size()) of tensor `index`.
  void write(size_t index, int64_t offset, std::span<const std::byte> data);
  // Throws OTR_E_STATE unless every byte was written. The file is durable then, its name is not.
  void finish();

 private:
  struct Progress;

  void lay_out();
  void write_header();
  void claim(size_t index, int64_t offset, std::span<const std::byte> data);

  Metadata metadata_;
  std::vector<Entry> entries_;
  int64_t data_begin_ = 0, file_bytes_ = 0;
  File file_;
  mutable std::mutex mutex_;
  std::vector<Progress> progress_;  // guarded by mutex_
  bool finished_ = false;           // guarded by mutex_
};

}  // namespace outrigger::checkpoint
