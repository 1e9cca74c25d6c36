// SPDX-License-Identifier: Apache-2.0
// The functions of a caller's communicator on this rank, and what becomes of its group when one of
// them fails.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/comm/channel.h"
#include "core/comm/fate.h"
#include "core/comm/operation.h"
#include "outrigger.h"

namespace outrigger::comm {

class CustomTable final : public Channel {
 public:
  CustomTable(const otr_comm_table& table, std::shared_ptr<Fate> fate, std::string_view name);
  // Gives user_data back, if it is owned.
  ~CustomTable() override;
  CustomTable(const CustomTable&) = delete;
  CustomTable& operator=(const CustomTable&) = delete;
  void own() { owns_ = true; }
  void set_identity(uint64_t identity) { identity_ = identity; }

  int32_t rank() const override { return table_.rank; }
  int32_t size() const override { return table_.world_size; }
  std::string_view provider() const override { return "custom"; }
  uint64_t identity() const override { return identity_; }
  const void* fate() const override { return fate_.get(); }
  std::string text() const override { return current_.text(); }

  // These throw OTR_E_HOST where the caller's function fails, which ends the group on this rank.
  void all_gather(const void* mine, size_t bytes, void* all, const Owner& owner) override;
  bool has_broadcast() const override { return table_.broadcast != nullptr; }
  // By a gather where the caller has no such function.
  void broadcast(std::span<std::byte> data, int32_t root) override;
  // By gathers where there is no such function.
  void all_to_all(const std::byte* parts, size_t bytes, std::byte* received,
                  const Owner& owner) override;
  std::unique_ptr<Channel> duplicate(std::string_view name) override;
  bool can_split() const override { return table_.split != nullptr; }
  std::unique_ptr<Channel> split(const std::vector<int32_t>& groups,
                                 const std::vector<int32_t>& places, int32_t rank, int32_t size,
                                 std::string_view name) override;

  void abort(std::string_view reason) noexcept override;
  void post(const Error& error) noexcept override;
  void cancel() noexcept override;
  void check() const override;

 private:
  void meet(Operation operation) override;
  template <typename Function>
  void call(const char* name, const Function& function);

  const otr_comm_table table_;
  const std::shared_ptr<Fate> fate_;
  const std::string name_;
  const pid_t process_;
  uint64_t identity_ = 0;
  bool owns_ = false;  // user_data
  std::atomic<bool> cancelled_{false}, in_call_{false};
  Operation current_;
};

}  // namespace outrigger::comm
