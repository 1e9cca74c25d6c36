// SPDX-License-Identifier: Apache-2.0
// What moves the bytes of a communicator whose ranks share no memory: the caller's functions
// (custom_table.h), or a plugin (transport.h). channel_communicator.h makes a communicator of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/comm/operation.h"

namespace outrigger::comm {

class Channel {
 public:
  // What keeps memory that a failed call may leave in use; null: the caller's own, which nothing
  // touches once the call has returned.
  using Owner = std::shared_ptr<const void>;

  virtual ~Channel() = default;
  [[nodiscard]] virtual int32_t rank() const = 0;
  [[nodiscard]] virtual int32_t size() const = 0;
  [[nodiscard]] virtual std::string_view provider() const = 0;
  [[nodiscard]] virtual uint64_t identity() const = 0;  // as Communicator::identity
  [[nodiscard]] virtual bool is_one_host() const { return false; }
  // Whose failures end this channel; duplicates have the same one.
  [[nodiscard]] virtual const void* fate() const = 0;
  [[nodiscard]] virtual std::string text() const = 0;  // of the last operation
  [[nodiscard]] virtual uint64_t completed() const { return 0; }
  [[nodiscard]] virtual std::string waiting() const { return {}; }

  // All ranks tell what they are about to do; a difference ends the group everywhere.
  void begin(OperationKind kind, uint64_t bytes, std::string_view label, int32_t root = 0,
             uint64_t offset = 0) {
    Operation operation;
    operation.kind = kind;
    operation.root = root;
    operation.bytes = bytes;
    operation.offset = offset;
    operation.set_label(label);
    meet(operation);
  }

  // Of the operation that has begun; sizes are not 0. mine may be its own place in all where
  // gathers_in_place().
  [[nodiscard]] virtual bool gathers_in_place() const { return false; }
  virtual void all_gather(const void* mine, size_t bytes, void* all, const Owner& owner) = 0;
  [[nodiscard]] virtual bool has_broadcast() const = 0;
  virtual void broadcast(std::span<std::byte> data, int32_t root) = 0;
  // received becomes what every rank has for this one.
  virtual void all_to_all(const std::byte* parts, size_t bytes, std::byte* received,
                          const Owner& owner) = 0;
  // Between two ranks, of the caller's memory.
  [[nodiscard]] virtual bool has_pairs() const { return false; }
  virtual void send(std::span<const std::byte> data, int32_t to);
  virtual void receive(std::span<std::byte> data, int32_t from);

  [[nodiscard]] virtual std::unique_ptr<Channel> duplicate(std::string_view name) = 0;
  // groups, places: of each rank. Null where this rank is in none.
  [[nodiscard]] virtual bool can_split() const { return true; }
  [[nodiscard]] virtual std::unique_ptr<Channel> split(const std::vector<int32_t>& groups,
                                                       const std::vector<int32_t>& places,
                                                       int32_t rank, int32_t size,
                                                       std::string_view name) = 0;

  virtual void abort(std::string_view reason) noexcept = 0;
  virtual void post(const Error& error) noexcept = 0;
  virtual void cancel() noexcept = 0;
  virtual void give_up([[maybe_unused]] int32_t culprit) noexcept {}
  virtual void check() const = 0;

 protected:
  virtual void meet(Operation operation) = 0;  // without its number
};

}  // namespace outrigger::comm
