// SPDX-License-Identifier: Apache-2.0
// One rank's place in an MPI communicator of the plugin's own, and what it has begun there. Nothing
// here blocks, but for what the table says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api/include/outrigger_plugin.h"

namespace outrigger::mpi {

class Request {
 public:
  virtual ~Request() = default;
  // Whether it is over; throws a Failure if it went wrong, and is over then, too.
  [[nodiscard]] virtual bool test() = 0;
};

class Channel {
 public:
  using Begun = std::unique_ptr<Request>;
  // What is to be a channel when the request is over.
  using Made = std::pair<std::shared_ptr<Channel>, Begun>;

  virtual ~Channel() = default;
  [[nodiscard]] virtual int32_t rank() const = 0;
  [[nodiscard]] virtual int32_t world() const = 0;
  [[nodiscard]] virtual Made duplicate() = 0;
  [[nodiscard]] virtual Made split(int32_t color, int32_t key) = 0;  // color −1: a null channel

  [[nodiscard]] virtual Begun all_gather(const void* mine, void* all, size_t bytes) = 0;
  [[nodiscard]] virtual Begun broadcast(void* data, size_t bytes, int32_t root) = 0;
  [[nodiscard]] virtual Begun all_to_all(const void* parts, void* received, size_t bytes) = 0;
  [[nodiscard]] virtual Begun smallest(uint64_t* values, int64_t count) = 0;
  [[nodiscard]] virtual Begun exchange(const otr_plugin_transfer* sends, int64_t send_count,
                                       const otr_plugin_transfer* receives,
                                       int64_t receive_count) = 0;

  // Any thread.
  virtual void send_message(int32_t to, const void* message) = 0;
  [[nodiscard]] virtual bool receive_message(void* message) = 0;
  [[nodiscard]] virtual std::vector<int32_t> failed() = 0;
  // In MPI_Finalize, of a channel for messages: takes what has come, so that libraries find nothing
  // left and have nothing to complain of. Waits a second at most. Never throws.
  virtual void part() noexcept = 0;
  // The same where MPI_Finalize would wait for the dead: lets go what this rank has told the
  // others, such as why it ends. Waits 0.3 seconds at most. Never throws.
  virtual void let_go() noexcept = 0;
};

// group: the address of an MPI_Comm, or null for all processes.
[[nodiscard]] Channel::Made attach(const void* group);
[[nodiscard]] std::string version();

}  // namespace outrigger::mpi
