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
#include <utility>
#include <vector>

#include "core/checkpoint/bulk_file.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/table.h"

namespace outrigger::checkpoint {

// A file is untrusted: it is OTR_E_CORRUPT in all but its values before the first of them is read,
// and what is held is at most eight times its header. Accepts nothing that the official reader
// refuses. read() may be called from several threads.
class Reader {
 public:
  Reader(const Folder& folder, std::string_view name) : Reader(folder.open_file(name)) {}
  explicit Reader(File file);

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

// A file to be written: where each tensor will be, and the bytes in front of them.
struct Outline {
  // Throws OTR_E_ARGUMENT for names that are not UTF-8 or not different, and for what a reader
  // would refuse.
  Outline(std::vector<TensorSpec> tensors, const Metadata& metadata);

  std::vector<Entry> entries;  // in the order in which they were given
  std::string head;
  int64_t file_bytes = 0;
  [[nodiscard]] int64_t data_begin() const { return static_cast<int64_t>(head.size()); }
  // Of a tensor's first byte in the file.
  [[nodiscard]] int64_t place_of(size_t index) const { return data_begin() + entries[index].begin; }
};

// All tensors are given up front; their bytes come from any thread, each byte once, in any order
// where the file is small, and else as BulkFile wants them. Whoever owns the folder removes a file
// that was not finished.
class Writer {
 public:
  Writer(Folder& folder, std::string_view name, Outline outline, const BulkFile::Sizes& sizes = {});
  Writer(Folder& folder, std::string_view name, std::vector<TensorSpec> tensors,
         const Metadata& metadata, const BulkFile::Sizes& sizes = {})
      : Writer(folder, name, Outline(std::move(tensors), metadata), sizes) {}
  ~Writer();

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] int64_t file_bytes() const { return outline_.file_bytes; }
  // In the order in which they were given.
  [[nodiscard]] const std::vector<Entry>& entries() const { return outline_.entries; }

  // Bytes [offset, offset + data.size()) of tensor `index`.
  void write(size_t index, int64_t offset, std::span<const std::byte> data);
  // Throws OTR_E_STATE unless every byte was written.
  void require_complete() const;
  // The same, and makes the file durable; its name is not yet.
  void finish();

 private:
  struct Progress;

  void require_all() const;  // under mutex_
  void claim(size_t index, int64_t offset, std::span<const std::byte> data);

  const Outline outline_;
  BulkFile file_;
  mutable std::mutex mutex_;
  std::vector<Progress> progress_;  // guarded by mutex_
  bool finished_ = false;           // guarded by mutex_
};

}  // namespace outrigger::checkpoint
