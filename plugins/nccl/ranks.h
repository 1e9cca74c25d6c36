// SPDX-License-Identifier: Apache-2.0
// One rank's NCCL communicator on one GPU, which never blocks: every call that NCCL may still be
// at work on is asked after.
#pragma once

#include <mutex>
#include <string>
#include <type_traits>

#include "c_api/include/outrigger_plugin.h"
#include "plugins/cuda/gpu.h"
#include "plugins/nccl/library.h"

namespace outrigger::nccl {

[[nodiscard]] UniqueId make_id();

class Ranks {
 public:
  explicit Ranks(const otr_plugin_ranks& given);
  ~Ranks();  // as abort
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void abort() noexcept;
  [[nodiscard]] bool is_ready();

  void exchange(const otr_plugin_transfer* sends, int64_t send_count,
                const otr_plugin_transfer* receives, int64_t receive_count, uint64_t stream);
  void all_gather(const void* mine, void* all, size_t bytes, uint64_t stream);
  void reduce_scatter(const void* all, void* mine, int64_t count, int32_t format, uint64_t stream);

  [[nodiscard]] void* add_memory(void* data, size_t bytes);
  void drop_memory(void* handle) noexcept;

 private:
  // Throws what NCCL refuses with; that it is still at work is no refusal. mutex_ is held.
  template <typename... P>
  void call(const Entry<P...>& entry, std::type_identity_t<P>... arguments) {
    const Result result = entry.at(arguments...);
    if (result != kSuccess && result != kInProgress) failed(entry.name, result);
  }
  [[noreturn]] void failed(const char* call, Result result) const;
  [[noreturn]] void refuse_peer(const otr_plugin_transfer& transfer) const;
  // mutex_ is held, and the context is current.
  void require_open() const;

  const Library& library_;
  cuda::Gpu gpu_;
  const int32_t rank_, world_;
  std::mutex mutex_;                     // NCCL's calls on one communicator are not to overlap
  Communicator communicator_ = nullptr;  // null: aborted
};

}  // namespace outrigger::nccl
