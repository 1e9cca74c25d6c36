// SPDX-License-Identifier: Apache-2.0
// The functions of a caller's communicator on this rank, and what becomes of its group when one of
// them fails.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/comm/operation.h"
#include "outrigger.h"

namespace outrigger::comm {

// What a group's duplicates on this rank share: the first failure.
class Fate {
 public:
  void check() const {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
  }
  [[noreturn]] void fail_with(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    throw Error(*failure_);
  }
  void post(const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
};

class CustomTable {
 public:
  CustomTable(const otr_comm_table& table, std::shared_ptr<Fate> fate, std::string_view name);
  // Gives user_data back, if it is owned.
  ~CustomTable();
  CustomTable(const CustomTable&) = delete;
  CustomTable& operator=(const CustomTable&) = delete;
  void own() { owns_ = true; }

  [[nodiscard]] int32_t rank() const { return table_.rank; }
  [[nodiscard]] int32_t size() const { return table_.world_size; }
  [[nodiscard]] const void* fate() const { return fate_.get(); }
  [[nodiscard]] std::string text() const { return current_.text(); }  // of the last operation

  // All ranks tell what they are about to do; a difference ends the group everywhere.
  void begin(OperationKind kind, uint64_t bytes, std::string_view label, int32_t root = 0,
             uint64_t offset = 0);

  // These throw OTR_E_HOST where the caller's function fails, which ends the group on this rank.
  void all_gather(const void* mine, size_t bytes, void* all);
  [[nodiscard]] bool has_broadcast() const { return table_.broadcast != nullptr; }
  // By a gather where the caller has no such function.
  void broadcast(std::span<std::byte> data, int32_t root);
  // received becomes what every rank has for this one. By gathers where there is no such function.
  void all_to_all(const std::byte* parts, size_t bytes, std::byte* received);
  [[nodiscard]] std::unique_ptr<CustomTable> duplicate(std::string_view name);
  // groups, places: of each rank. Null where this rank is in none.
  [[nodiscard]] bool can_split() const { return table_.split != nullptr; }
  [[nodiscard]] std::unique_ptr<CustomTable> split(const std::vector<int32_t>& groups,
                                                   const std::vector<int32_t>& places, int32_t rank,
                                                   int32_t size, std::string_view name);

  void abort(std::string_view reason) noexcept;
  void post(const Error& error) noexcept;
  void cancel() noexcept;
  void check() const;

 private:
  template <typename Function>
  void call(const char* name, const Function& function);

  const otr_comm_table table_;
  const std::shared_ptr<Fate> fate_;
  const std::string name_;
  const pid_t process_;
  bool owns_ = false;  // user_data
  std::atomic<bool> cancelled_{false}, in_call_{false};
  Operation current_;
};

}  // namespace outrigger::comm
