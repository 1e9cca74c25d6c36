// SPDX-License-Identifier: Apache-2.0
// Tensors of one micro-batch in one buffer, for any transport. A message is a safetensors file in
// memory whose first metadata is a version and a checksum:
//
//   uint64 n | {"__metadata__":{"outrigger.message":"1:<16 hex digits>", …}, "name": …} | values
//
// The checksum is XXH3-64 of the whole message with zeros in place of the digits.
// docs/messages.md tells the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/table.h"
#include "core/tensor/tensor.h"
#include "outrigger.h"

namespace outrigger::message {

using Attributes = checkpoint::Metadata;

// What a message tells beside its tensors.
struct Notes {
  int64_t micro_batch = 0;
  tensor::Tag tag;
  Attributes attributes;
};

struct Tensor {
  std::string name;
  otr_tensor view;  // on the CPU; data NULL: its place is left as it is
};

// What is to be packed: checked, and where everything goes.
class Packed {
 public:
  // Throws OTR_E_ARGUMENT, OTR_E_DTYPE, OTR_E_DEVICE, OTR_E_SHAPE. The views' memory outlives it.
  Packed(const std::vector<Tensor>& tensors, const Notes& notes);
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(outline_.file_bytes); }
  // Sealed, unless a place was left. buffer: bytes().
  void write(std::byte* buffer) const;

 private:
  std::vector<otr_tensor> views_;
  checkpoint::Outline outline_;
};

// A packed message, which is read where it lies.
class Message {
 public:
  // checked: the checksum has to be right. The header always has to be. The buffer is as untrusted
  // as a file. Throws OTR_E_CORRUPT; OTR_E_UNSUPPORTED: of a later version.
  Message(std::span<std::byte> buffer, bool checked);

  [[nodiscard]] const Notes& notes() const { return notes_; }
  [[nodiscard]] const std::vector<checkpoint::Entry>& entries() const { return table_.entries(); }
  [[nodiscard]] size_t bytes() const { return buffer_.size(); }
  // Views of the buffer; the shape is this object's. Throws OTR_E_NOT_FOUND with the nearest name.
  [[nodiscard]] otr_tensor tensor(std::string_view name) const;
  [[nodiscard]] otr_tensor tensor(const checkpoint::Entry& entry) const;

 private:
  std::span<std::byte> buffer_;
  size_t data_begin_ = 0;
  checkpoint::Table table_;
  Notes notes_;
};

// Writes the checksum of a message whose places have been filled. Throws as Message does.
void seal(std::span<std::byte> buffer);

// Rows that one rank of a group has and one rank of another group needs.
struct Route {
  int32_t source, target;
  int64_t source_row, target_row, rows;
};
// The rows of all sources, one rank's behind the other's, are those of all targets. In the
// order of the rows; nothing of no rows. Throws OTR_E_ARGUMENT: a negative number, or other sums.
[[nodiscard]] std::vector<Route> routes(std::span<const int64_t> source,
                                        std::span<const int64_t> target);

}  // namespace outrigger::message
