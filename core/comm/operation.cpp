// SPDX-License-Identifier: Apache-2.0
#include "core/comm/operation.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"

namespace outrigger::comm {

void Operation::set_label(std::string_view text) {
  if (text.size() < label.size() && label[text.size()] == '\0' &&
      std::equal(text.begin(), text.end(), label.begin()) && label_hash != 0) {
    return;
  }
  label_hash = XXH3_64bits(text.data(), text.size());
  const size_t n = std::min(text.size(), label.size());
  std::copy_n(text.data(), n, label.data());
  std::fill(label.begin() + static_cast<std::ptrdiff_t>(n), label.end(), '\0');
}

std::string_view Operation::label_text() const {
  return {label.data(), strnlen(label.data(), label.size())};
}

namespace {

// What two ranks' calls must have in common lies in one piece.
constexpr size_t kCallBegins = offsetof(Operation, kind);
constexpr size_t kCallBytes = offsetof(Operation, label) - kCallBegins;
static_assert(std::has_unique_object_representations_v<Operation>);

const std::byte* call_of(const Operation& operation) {
  return reinterpret_cast<const std::byte*>(&operation) + kCallBegins;
}

}  // namespace

uint64_t Operation::digest() const { return XXH3_64bits(call_of(*this), kCallBytes); }

bool Operation::same_call(const Operation& other) const {
  return std::memcmp(call_of(*this), call_of(other), kCallBytes) == 0;
}

std::string Operation::text() const {
  const auto label = label_text();
  switch (kind) {
    case OperationKind::none:
      return "no operation";
    case OperationKind::barrier:
      return format_text("barrier '{}'", label);
    case OperationKind::broadcast:
      return format_text("broadcast '{}' of {} bytes from rank {}", label, bytes, root);
    case OperationKind::all_gather:
      return format_text("all_gather '{}' of {} bytes a rank", label, bytes);
    case OperationKind::all_gather_parts:
      return format_text("all_gather_parts '{}' of {} parts, {} bytes in all, sizes {:x}", label,
                         root, bytes, offset);
    case OperationKind::combine:
      return format_text("combine '{}' of {} bytes", label, bytes);
    case OperationKind::create_window:
      return format_text("create_window '{}' of {} bytes{}", label, bytes,
                         root == 0 ? " a rank" : ", common");
    case OperationKind::duplicate:
      return format_text("duplicate '{}'", label);
    case OperationKind::reduce:
    case OperationKind::all_gather_window:
      return format_text(
          "{} '{}' of {} bytes a slice at offset {} of the window made by operation {}{}",
          kind == OperationKind::reduce ? "reduce" : "all_gather_window", label, bytes, offset,
          window[1], window[0] == 0 ? "" : format_text(" of channel {}", window[0]));
  }
  return format_text("operation of unknown kind {}", static_cast<uint32_t>(kind));
}

std::string disagreement(uint64_t number, std::string_view name, const Operation& first,
                         int64_t rank, const Operation& other) {
  return format_text(
      "ranks disagree on operation {} of '{}': rank 0 calls {}, rank {} calls {}; all ranks must "
      "make the same calls in the same order",
      number, name, first.text(), rank, other.text());
}

void require_process(pid_t made_by) {
  if (current_process() == made_by) return;
  fail(OTR_E_STATE,
       "this communicator belongs to process {} and this is its forked child {}; create one "
       "after the fork",
       made_by, current_process());
}

void require_root(std::string_view label, int32_t root, int32_t world) {
  if (root >= 0 && root < world) return;
  fail(OTR_E_ARGUMENT, "broadcast '{}': root {} is outside 0..{}", label, root, world - 1);
}

void require_room(std::string_view label, size_t mine, size_t all, int32_t world) {
  const auto ranks = static_cast<size_t>(world);
  if (all / ranks == mine && all % ranks == 0) return;
  fail(OTR_E_ARGUMENT, "all_gather '{}': the result has {} bytes, {} ranks give {} each", label,
       all, world, mine);
}

void PostedOperation::store(const Operation& operation) {
  std::array<uint64_t, kWords> words;
  std::memcpy(words.data(), &operation, sizeof(operation));
  const bool has_text = words_[kHash].load(std::memory_order_relaxed) == operation.label_hash;
  const size_t count = has_text ? kHash + 1 : kWords;
  for (size_t i = 0; i < count; i++) words_[i].store(words[i], std::memory_order_relaxed);
}

Operation PostedOperation::load() const {
  std::array<uint64_t, kWords> words;
  for (size_t i = 0; i < kWords; i++) words[i] = words_[i].load(std::memory_order_relaxed);
  Operation operation;
  std::memcpy(static_cast<void*>(&operation), words.data(), sizeof(operation));
  return operation;
}

}  // namespace outrigger::comm
