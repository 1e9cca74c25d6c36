// SPDX-License-Identifier: Apache-2.0
// What a rank says it is about to do, so that the others can tell a mismatch before any data moves.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace outrigger::comm {

enum class OperationKind : uint32_t {
  none,
  barrier,
  broadcast,
  all_gather,
  all_gather_parts,
  create_window,
  duplicate,
  reduce,
  all_gather_window,
  combine,
};

// Trivially copyable, no padding: it crosses processes word by word.
struct Operation {
  uint64_t number = 0;  // counts this channel's operations from 1
  OperationKind kind = OperationKind::none;
  int32_t root = 0;         // broadcast: the root; create_window: the WindowKind
  uint64_t bytes = 0;       // a rank's part
  uint64_t offset = 0;      // into the window
  uint64_t window[2] = {};  // channel and operation that created it
  uint64_t label_hash = 0;
  std::array<char, 72> label = {};  // shortened; the hash covers all of it

  // A text that is there already costs a comparison.
  void set_label(std::string_view text);
  [[nodiscard]] std::string_view label_text() const;
  // Of all but `number` and the label's text.
  [[nodiscard]] uint64_t digest() const;
  // Equal but for `number`, which always is.
  [[nodiscard]] bool same_call(const Operation& other) const;
  // "broadcast 'weights' of 512 bytes from rank 0"
  [[nodiscard]] std::string text() const;
};

// Why a group ends whose rank `other` does not call what rank 0 does, `name` being its channel.
[[nodiscard]] std::string disagreement(uint64_t number, std::string_view name,
                                       const Operation& first, int64_t rank,
                                       const Operation& other);

// What every provider refuses alike.
// Throws OTR_E_STATE in a forked child of the process that made the communicator.
void require_process(pid_t made_by);
void require_root(std::string_view label, int32_t root, int32_t world);
void require_room(std::string_view label, size_t mine, size_t all, int32_t world);  // all_gather

// An Operation in shared memory. Reading while the owner writes is allowed (for diagnostics): words
// are atomic, so the worst is a mixture of two operations.
class PostedOperation {
 public:
  // The label's text, which is in another cache line, only if its hash is another one.
  void store(const Operation& operation);
  [[nodiscard]] Operation load() const;

 private:
  static constexpr size_t kWords = sizeof(Operation) / sizeof(uint64_t);
  static constexpr size_t kHash = offsetof(Operation, label_hash) / sizeof(uint64_t);
  std::array<std::atomic<uint64_t>, kWords> words_;
};

static_assert(sizeof(Operation) == 128 && sizeof(PostedOperation) == 128);
static_assert(offsetof(Operation, label) < 64);

}  // namespace outrigger::comm
