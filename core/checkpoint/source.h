// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is read: any run of any state, from the files that have it, with checksums.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checksums.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/planes.h"

namespace outrigger::checkpoint {

// For one thread, but for read. The manifest outlives it.
class Source {
  // Where the last read of a plane was: the next one often goes on there.
  struct Cursor {
    const IndexRow* row = nullptr;
    std::shared_ptr<const Reader> reader;
    std::optional<CheckedTensor> tensor;
  };

 public:
  // Of a thread that reads; by plane.
  using Cursors = std::array<Cursor, 2>;

  // Throws OTR_E_CORRUPT.
  Source(Folder folder, const Manifest& manifest);

  // parameter: its number in the manifest, of a root.
  [[nodiscard]] bool has(int64_t parameter, Kept kept) const;
  // A plane's part for elements [first, first + count), which begins at a leaf and, in a format of
  // blocks, ends at one or with the parameter. Opens files as they are needed. Several threads may
  // read at a time, each with cursors of its own.
  void read(Cursors& cursors, int64_t parameter, Kept kept, size_t plane, int64_t first,
            int64_t count, std::vector<std::byte>& out);
  // Bytes that a rank's host gave. Throws OTR_E_NOT_FOUND.
  [[nodiscard]] std::vector<std::byte> part(const std::string& name, int64_t rank);
  [[nodiscard]] std::vector<std::string> part_names(int64_t rank);
  // Reads everything. Throws what is damaged: the first in full, the next ones by name, and how
  // many there are.
  void verify();

 private:
  struct Key {
    int64_t parameter, kept, plane;
    auto operator<=>(const Key&) const = default;
  };
  [[nodiscard]] std::shared_ptr<const Reader> reader_of(int64_t rank);
  [[nodiscard]] std::shared_ptr<const Reader> open(int64_t rank);
  [[nodiscard]] CheckedTensor tensor_of(const IndexRow& row, const Reader& reader,
                                        const std::string& name, Dtype dtype, int64_t bytes) const;
  [[nodiscard]] const Plane& plane_of(int64_t kept, int64_t plane) const;
  [[nodiscard]] std::string name_of(const IndexRow& row) const;  // of a state's tensor
  void move_to(Cursor& cursor, const IndexRow& row);
  void verify_state(const IndexRow& row, Cursors& cursors, std::vector<std::byte>& bytes);

  const Folder folder_;
  const Manifest* manifest_;
  Index index_;
  std::map<Key, std::vector<const IndexRow*>> runs_;  // by their first element
  struct Rank {
    size_t tensors = 0;
    std::map<int64_t, const IndexRow*> parts;  // by the hash of the name
  };
  std::vector<Rank> ranks_;
  std::mutex mutex_;  // guards the readers
  std::map<int64_t, std::shared_ptr<const Reader>> readers_;
};

}  // namespace outrigger::checkpoint
